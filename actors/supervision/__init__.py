"""Which components live, on which dispatcher, in which process, and what if one fails?

**Files.**

- `supervisor`: starts the components in order, and restarts them. `supervising`: when a failed one
  starts again, and what hangs. Pure. `watchdog`: looks whether they make progress.
- `placement`: the components, and the dispatcher and process of each.
- `authority`: keeps the process of locks and configuration. `authority_process`: its program.
- `rapi_keeper`: keeps the process of the remote API.
- `directory_keeper`: keeps the daemon's own files on disk. `logs`, `log_writer`: the log.

**Where they run.** Which dispatcher runs which component is a table, `placement` (why:
docs/decisions/dispatchers-run-actors.md). The dispatcher ``core`` has the path that every job
takes: the queue, the scheduler, the executor, the lock manager and the listener. Each other
component has one of its own. No component shares the supervisor's, because it stops them all. The
main thread runs the watchdog and takes signals. The same table is the order of starts: a component
starts when the one before it is ready, the listeners last, so that no request arrives before its
receiver is ready.

With ``ganger daemon --placement apart`` the lock manager and the configuration store live in a
process of their own (why: docs/decisions/locks-and-configuration-may-live-apart.md). `Authority`
starts it, and fails when it ends or gives no sign of life; `authority_process` is its program, and
`AuthorityListener` in it owns the socket, to which the processes of jobs connect as well. The
daemon's supervisor starts and restarts the components over there as those here: its message
``StartComponent`` goes through the link.

**A component fails.** An error that is no answer to a request ends one actor: the one in whose turn
it happened (`ComponentActor.crash`). The other actors of the dispatcher go on at once, in the same
thread. The actor leaves the directory, refuses what waits for it, closes what it holds, and tells
the supervisor (`ComponentFailed`). `Supervisor._take_failure` asks `supervising.after_failure`, and
starts a new incarnation on the same dispatcher: at once the first time, then with growing delays.
When that is ready, the supervisor sends `ComponentReplaced` (see below). If a component fails more
than ``restarts_max`` (5) times within a minute, the daemon ends with a clear error, and jobs that
run go on. One that fails before the daemon was ready ends it at once. The new incarnation builds
its state from disk and from the living, never from the memory of another actor.

**A component hangs.** Its thread hangs with it, so the other actors of its dispatcher wait too;
none of them is within a turn, and none of their messages is lost. The watchdog looks once a second
(`supervising.after_look`). It blames the one actor that has worked at the same message for
``--hung-after`` seconds (60; ten times as long for the first message, which builds the state), and
logs where it hangs. The supervisor abandons that actor: its name leaves the directory, requests are
refused, and a new thread serves the neighbours, whose state is whole. If the old thread ever goes
on, the actor in it can reach no other component, its replies are dropped, and the thread ends.

What follows is ``when_hung`` in `supervising.POLICIES`. The scheduler, the filter evaluator and the
output reader get a new incarnation: they keep everything in memory, or only read files. For the
lock manager or the configuration store in the process ``authority``, `Authority` ends that process,
and the next one starts both anew. For every other component the supervisor stops the listener,
which sends the refusals first, and begins the daemon anew in the same process: the kernel ends the
thread, with its files and locks (docs/decisions/hung-components.md). If the supervisor hangs, the
main thread does so. A daemon that began anew more than five times within an hour ends.

**A dispatcher fails** by an error of its own, outside every turn. That ends all its actors, like a
failure of each, and the supervisor restarts them. A failure of the supervisor ends the daemon: no
other component would notice what fails next. When the process ``authority`` ends, requests that
waited there count as taken and not answered yet; jobs connect anew, and repeat theirs. It ends with
its daemon: the kernel kills it, and until then it keeps the queue directory locked.

**Requests that wait** are refused or repeated. A client's request over which the component failed
or hung gets `RequestFatalError`; the client library does not repeat it, because it would end each
successor. One that was taken and not answered gets `RequestInterruptedError`; the library repeats
it three times at most, because it may have been the cause. One in the mailbox, or sent during the
restart, gets `ComponentRestartedError`; the library repeats it. A job's process is refused, and
repeats. A request of `Runtime.ask` is repeated whenever a component was replaced, until its
deadline (60 seconds, or that of the client for whom it asks); then ``otherwise`` gets a
`DeadlineError`. One over which the receiver failed is not repeated: ``otherwise`` gets the
`RequestFatalError`. A component does not execute a request whose deadline has passed.

Every request can be repeated safely: a submission by its key, a lock request by its owner, a state
by its serial, a change of the filter rules because these are made in the order in which they
arrive. What cannot be repeated safely is no ``ask``
(docs/decisions/requests-to-jobs-carry-numbers.md). The components in ``NOTIFIED_OF_REPLACEMENT``
act for clients or jobs, and learn of each replacement: the listener refuses the requests that the
replaced component has forgotten, the executor lets the processes of jobs repeat what has no reply,
and the configuration store sends again the changes that are not in force yet.

**The remote API.** `RapiKeeper` owns its listening socket. It starts the process
``ganger.rapi.process``, gives it the socket and one end of a socket pair, writes to the log what
the process says, and starts it again when it ends or gives no sign of life. Nothing in the daemon
waits for it.

The tests: tests/actors/runtime (test_dispatcher: neighbours, test_actor: failures and refusals,
test_runtime: requests) and tests/faults/test_hung_component.py, where each component hangs in a
daemon at work.
"""
