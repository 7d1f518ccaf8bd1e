"""What does a component stand on: mailboxes, turns, errors?

`Component` is what an actor knows and does. It has no thread, no clock and no mailbox, and reaches
everything outside through its `Runtime`: it sends messages (`tell`, `forward`), asks (`ask`), sets
alarms (`later`), does slow work in a thread (`in_thread`) or while its dispatcher has nothing to do
(`when_idle`), works in slices (`work`), and watches descriptors. So a test puts it on a stage,
without a thread, and sets the time. `Component` and `Runtime` say what each method does.

`ComponentActor` is the pykka actor of one incarnation of a component, with a mailbox of its own. It
handles the messages that have come, up to a limit, and then ends its turn. What the messages of one
turn want on disk goes there together: one flush for all, then the replies. Under load the turns
grow and the flushes get fewer, without any timer.

`Dispatcher` is a thread that runs the turns of one or several actors, one turn after the other. It
sleeps in one ``epoll`` for all its mailboxes, descriptors and alarms.

`addresses` name components, and carry the type of the messages that each accepts: a message to the
wrong component is an error of the type checker. An address outlives the restarts of its component.
`Directory` knows which `Receiver` is behind a name now. A receiver takes envelopes and says how
many wait. It is an actor of this process, or the link to another one, and the senders do not
notice. A request to a name without a receiver is refused.

- `component`: what a component is, and its `Runtime`. `host`: what the components of a process
  share. `rapi_options`: a part of it.
- `actor`: `ComponentActor`. `mailbox`: what other threads share with it, and the watchdog sees.
  `served_actor`: an actor as others see it.
- `dispatcher`: `Dispatcher`. `addresses`: the names; `transport.envelopes` has the directory.
- `slices` and `works`: work in slices. `idle_work`: work while nothing comes.
- `installed_answers`: what packages answer for a component.
- `turn_limit`, `id_maps`, `id_sets`: what several components use.
"""
