"""Limits and defaults that several files share, or that a user may meet. No logic.

One that a single file uses stands at the top of that file.
"""

from __future__ import annotations

FRAME_BYTES_MAX = 8 * 1024 * 1024
"""Largest frame that a listener accepts."""

FRAME_ITEMS_MAX = 200_000
"""Most elements of one array or map in a frame."""

FRAME_CONTAINERS_MAX = 400_000
"""Most arrays and maps in a frame: each takes many times its one byte in memory."""

FRAMES_BYTES_OPEN_MAX = FRAME_BYTES_MAX // 8
"""Bytes of frames in work above which the listener reads no further ones."""

SMALL_FRAME_BYTES = 1_024
"""Frames up to this size have no limit in bytes, only in number (`MAILBOX_DEPTH_MAX`)."""

SOCKET_PATH_BYTES_MAX = 107
"""Longest path of a Unix socket: the kernel's 108 bytes with the NUL behind it."""

JOB_ID_JUMP_MAX = 10**12
"""How far the id in a file's name may lie above all other known ids, and still count as given.

A queue gives fewer ids in thirty years at a thousand jobs a second: a file with a higher number
does not come from this queue.
"""

JOBS_PER_SUBMIT_MAX = 20_000
"""Most jobs in one submission."""

SUBMITTED_AT_ONCE = 100
"""Jobs of a large submission that the queue works at before it serves other requests."""

PRIORITY_MIN, PRIORITY_MAX = -20, 19
"""The most and the least urgent priority of an opcode."""

OPCODES_PER_JOB_MAX = 1_000
"""Most opcodes in one job."""

JOB_BYTES_MAX = FRAME_BYTES_MAX - 1024 * 1024
"""Largest stored form of a job (the JSON text of its file): it fits into a frame."""

JOB_SUBMITTED_BYTES_MAX = FRAME_BYTES_MAX // 2
"""Largest stored form of a submitted job, with its secrets."""

JOB_LOG_BYTES_MAX = 3 * FRAME_BYTES_MAX // 16
"""Most bytes of the stored form for a job's log, all opcodes together."""

JOB_LOG_RESERVE_BYTES = FRAME_BYTES_MAX // 64
"""Most bytes for what a job's process itself logs when the log is full."""

JOB_END_BYTES_MAX = FRAME_BYTES_MAX // 8
"""Most bytes for time stamps, statuses and the texts of an end."""

ERROR_RESULT_BYTES_MAX = FRAME_BYTES_MAX // 64
"""Most bytes for the result of the opcode with which a job fails; this room is reserved."""

STORED_DEPTH_MAX = 100
"""Deepest nesting of a result, or of an entry of a log, that readers must bear."""

TRACEBACK_BYTES_MAX = 16 * 1024
"""Most bytes of a failed operation's traceback in the log: its end."""

INPUT_INLINE_BYTES_MAX = 16 * 1024
"""Standard input that is larger than this as JSON lies in its own file beside the job."""

STDIN_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""Largest standard input of a command: more is refused while it is sent."""

STDIN_PART_BYTES = 512 * 1024
"""Standard input that is larger than this is sent in parts of this size, before its job."""

UPLOAD_SECONDS_MAX = 3_600.0
"""Age at which standard input that was sent, and that no job has, may be deleted."""

SUMMARY_BYTES_MAX = 400
"""Longest summary, and longest reason, in a listing: a page of them fits into a frame."""

RETRIES_NOTED_MAX = 1_000
"""Most jobs that a job names as its repetitions: the newest."""

START_ATTEMPTS_MAX = 10
"""Starts in a row of a job whose process ends before it begins; then the job fails."""

PLANNED_JOBS_MAX = 10_000
"""Pending jobs that a plan looks at; of those behind them it says nothing."""

ESTIMATES_WRITE_SECONDS = 600.0
"""How long new run times may stay in memory alone. Losing them is harmless."""

AGES_WRITE_SECONDS = 5.0
"""How long the ages of new jobs may stay in memory alone. Losing them makes jobs younger."""

AGE_STEP_SECONDS = 1.0
"""Jobs that came within this time of each other are equally old after a restart."""

LEARNT_BODY_BYTES_MAX = 16_384
"""The run times of a job whose text is longer are not learnt: reading them takes too long."""

LIST_PAGE_ROWS = 5_000
"""Most rows in one reply to a listing; clients ask for the next page."""

CAUSES_MAX = 1_000
"""Most jobs of which one request may ask for what they wait."""

VERSIONS_PAGE_ROWS = 20_000
"""Most jobs in one reply that tells their versions."""

QUERY_PAGE_BYTES_MAX = 1024 * 1024
"""Most bytes of JSON on one page of the answer to a query, unless a single item has more."""

QUERY_ROW_RESERVE_BYTES = 64 * 1024
"""Bytes of a frame that are left for what stands beside the items of an answer."""

QUERY_SLICE_SECONDS = 0.015
"""Time after which a page of the answer to a query ends: other messages wait meanwhile."""

JOB_MEMORY_BYTES = 1536
"""About what the daemon's components take of memory for a live job."""

UNWRITTEN_JOB_MEMORY_BYTES = 1024
"""About what they take beside that for a job without a file."""

LOOKED_AT_ONCE = 500
"""Jobs of a simulation or a plan that the scheduler looks at before it handles other messages."""

SIMULATED_JOB_MEMORY_BYTES = 2048
"""About what a simulation takes of memory for each live job."""

MAILBOX_DEPTH_MAX = 50_000
"""Messages waiting in an actor's mailbox above which listeners refuse new work."""

TURN_MESSAGES_MAX = 256
"""Most messages an actor handles before its turn ends (group commit, writes of files)."""

TURN_SECONDS = 0.005
"""Time after which an actor's turn ends, when the message that it handles is done."""

TURN_WINDOW_SECONDS = 10.0
"""The status tells the longest turn of at least this time, and at most twice as much."""

DESCRIPTORS_MAX = 65_536
"""Descriptors that a daemon takes if the system permits; it has no use for more."""

DESCRIPTORS_MIN = 128
"""Descriptors without which no daemon starts."""

DESCRIPTORS_REMOTE_MIN = 4_096
"""Descriptors that a remote listener needs: many may connect before it counts them."""

DESCRIPTORS_OWN = 48
"""Descriptors for the daemon's own sockets and files, such as the journal. The process of the
remote API has a number of its own (`rapi_settings`)."""

DESCRIPTORS_PER_JOB = 3
"""Descriptors of a run slot: the job's channel (for a moment both ends) and its process."""

PEERS_MAX = 1_000
"""Connections of one listener above which it refuses further ones."""

LISTENER_DESCRIPTORS_MAX = 2_200
"""Most descriptors of one listener, with handshakes; above, it accepts no connection."""

DOCUMENT_BYTES_MAX = 8 * FRAME_BYTES_MAX
"""Longest text of a plan, a rule or opcodes that a command reads: as a frame it is shorter."""

ACCEPTED_AT_ONCE = 32
"""Most local connections that may connect before the listener counts them."""

ACCEPTED_UNSEEN_MAX = 1_100
"""Remote connections that may connect before the listener counts them: libzmq stops after 1,001
unread events."""

UNHEARD_SECONDS = 1.0
"""How long a connection may be silent while its listener is full."""

RUNNING_JOBS_MAX = 20
"""Run slots, unless the configuration says otherwise (Ganeti's ``max_running_jobs``)."""

TRACKED_JOBS_MAX = 25
"""Kept in the configuration for Ganeti's clients (``max_tracked_jobs``)."""

SPARE_CHILDREN = 10
"""Children a fork server keeps ready."""

ENDED_CHILDREN_KEPT = 256
"""Ended children, the last ones, whose exit status a fork server remembers."""

STATUS_SECONDS = 1.0
"""How long a fork server may take to report how a process has ended."""

SPARE_CHILDREN_LEFT = 1
"""Spare children left when a fork server makes new ones: a batch costs less per child."""

REUSED_PROCESS_JOBS_MAX = 100
"""Jobs that one process serves, one after the other; then it ends."""

REUSED_IDLE_MAX = 32
"""Most processes that wait for a further job."""

REUSED_IDLE_SECONDS = 5.0
"""How long a process waits for a further job; then it ends."""

REUSED_GROWTH_BYTES_MAX = 64 * 1024 * 1024
"""Memory that a process may add to its own over its jobs; with more, it takes no further one."""

HAND_OVER_SECONDS = 30.0
"""How long a child may take to send its lock file's name."""

CLIENT_DEADLINE_SECONDS = 30.0
"""Deadline of a client's call, unless it gives its own."""

CLIENT_HEARTBEAT_SECONDS = 5.0
"""Silence on a watch after which the client asks whether the daemon lives."""

WATCHERS_MAX = 1_000
"""Most watches open at one time."""

WATCH_GATHER_SECONDS = 0.01
"""How long a change of a job waits for others, for a watch that wants them together."""

WATCH_GATHERED_MAX = 500
"""Most changes of jobs in one message to such a watch."""

KEY_BYTES_MAX = 200
"""Longest idempotency key."""

NAME_BYTES_MAX = 200
"""Longest name of a job or plan."""

OWNERS_SWEEP_SECONDS = 0.25
"""How often the lock manager looks whether owners that no executor watches live."""

CONFIG_WHOLE_SECONDS = 5.0
"""How long after a change the whole configuration is written again."""

CHANGE_REPLIES_MAX = 10_000
"""Newest changes of the configuration of which the replies are kept, for repeated requests."""

CHANGE_REPLIES_BYTES_MAX = 8 * 1024 * 1024
"""Most bytes of the history that a start reads for them."""

CONFIG_REFUSAL_SECONDS = 0.5
"""How long before its deadline a change is refused that waits for the configuration lock."""

LOCK_JOURNAL_BYTES = 256 * 1024
"""Least size at which the whole state of locks is written again."""

JOURNAL_SEGMENT_BYTES = 16 * 1024 * 1024
"""Size at which the journal begins a new segment."""

FILE_BYTES_NEEDED = 64 * JOURNAL_SEGMENT_BYTES
"""How large the files of a daemon must be allowed to become: its log grows as long as it runs."""

SEALED_SEGMENTS_MAX = 8
"""Full segments beside the newest one, until the compactor has written the files of the first."""

JOURNAL_RESERVE_BYTES = 512 * 1024
"""Zeros that the journal writes ahead of its records."""

JOB_FILE_BYTES = 4096
"""What the file of a job takes on a disk, unless it is large: a block."""

NEW_JOB_BYTES = 2 * JOB_FILE_BYTES
"""What a new job takes on a disk until it has ended: its file, and its records in the log."""

JOURNAL_LAST_BYTES = 64 * 1024
"""The last of these zeros, for records of purges: those of 13,000 jobs have room.

Cancelations may take half of them.
"""

JOURNALED_STATE_BYTES_MAX = 64 * 1024
"""A job state above this is flushed by its process instead of sharing the journal's flush."""

AUTOARCHIVE_JOBS_MAX = 10_000
"""Most jobs that one request archives; the reply says how many are left."""

WATCHED_AT_ONCE = 256
"""Most jobs whose states a watch of all jobs tells in one turn of the queue."""

WATCHED_WITH_LOG_AT_ONCE = 32
"""The same where each job's log is read."""

PURGE_PAGE_JOBS = 2_000
"""Jobs at which one request to purge looks; clients go on behind them."""

PURGED_AT_ONCE = 50
"""Jobs to be purged whose files are looked at before other requests have their turn."""

REMOVED_AT_ONCE = 10
"""Purged jobs whose files are removed before that: a disk under load takes milliseconds for one."""

ARCHIVED_AT_ONCE = 256
"""Jobs that are archived before other requests have their turn."""

NODE_TASKS_MAX = 500
"""Tasks that a node runs at one time, unless its own configuration says otherwise: the master has
given each of them a run slot already."""

NODE_CALL_SECONDS = 3.0
"""Time within which the master must answer a node; then the node tries its next endpoint."""

DISK_RETRY_SECONDS = 1.0
"""Time after a refused write until the daemon tries the disk again."""

DISK_RETRY_FACTOR_MAX = 8
"""Largest multiple of that wait, when flushes fail again and again: each try is expensive."""

FORECAST_SECONDS = 2.0
"""How long a job waits for the store to say which locks it will take, before it counts without."""

ASK_SECONDS = 60.0
"""How long a component waits for the reply of another one, through restarts of that one."""

LEFT_TASK_SECONDS = 3_600.0
"""After this time the executor asks the hub anew to end a task that a dead process has left."""

OPCODE_WAIT_SECONDS = 1.0
"""How long an explanation waits for what the configuration store knows; then it goes without."""

QUESTIONS_MAX = 1_000
"""Most unanswered questions about the daemon's state."""

REQUESTS_OPEN_MAX = 100_000
"""Unanswered requests of clients above which the listener refuses new ones."""

REQUESTS_OPEN_PER_PEER_MAX = 20_000
"""The same for one connection, so that one client does not use up the limit of all."""

REQUESTS_COUNTED_SECONDS = 0.1
"""How often the listener counts the unanswered requests per connection, when there are many."""

SWITCH_INTERVAL_SECONDS = 0.0005
"""How long a thread of the daemon may keep the interpreter while another waits."""

WINDOW_LOOK_SECONDS = 30.0
"""Longest time until the filter evaluator compares the rules' windows with the clock again."""

FILES_AT_ONCE = 10
"""Files of new jobs that the queue writes after a rest, or the compactor during one flush."""

FILES_SLICE_SECONDS = 0.005
"""How long a turn waits for the compactor if the newest segment is full, and may not be sealed."""

FILES_NOTICED_AT_ONCE = 1_000
"""Files of the compactor that the queue takes notice of in one turn."""

FILES_REST_SECONDS = 0.01
"""Time without messages after which the queue writes files of new jobs."""

LAZY_SECONDS = 0.1
"""Time without messages after which the queue flushes ends of jobs for which nobody waits."""

STOP_FILES_SECONDS = 3.0
"""How long a queue that stops writes the files of new jobs."""

MEMORY_REST_SECONDS = 0.1
"""Time without messages after which the queue gives back what large pieces of work have freed."""

FILES_UNWRITTEN_MAX = 1_000
"""Jobs without files above which the compactor writes them, when the queue rests or starts."""

JUDGE_STEPS_MAX = 2**30
"""Most steps (`storage/filters/metering`) to judge one job by the filter rules: some seconds. A
job that takes more waits."""

JUDGE_STEPS_AT_ONCE = 2**26
"""Steps of judging until the filter evaluator handles other messages: a tenth of a second."""

PASS_LOOKS_MAX = 1_000
"""Pending jobs at which the scheduler looks in one pass: 20 ms at most. It goes on with the others
in its next turn."""

EXPLAINED_JOBS_MAX = 2_000
"""Pending jobs before a job at which an explanation looks; it says so when there are more."""

PASS_ENDS_MAX = 25
"""Pending jobs that can never start, and that end together: the queue's turn takes 10 ms."""

ADMISSION_STEPS_MAX = 2**24
"""Most steps to judge a submission before it is stored; the evaluator judges the rest later."""

ADMISSION_STEPS_PER_JOB = 2**16
"""Steps by which that limit grows for each job of the submission: some hundred rules."""

JOB_READ_STEPS = 2**18
"""Cost of reading a job's file to judge the job: 256 of them take a few milliseconds."""

DECODED_AT_START_MAX = 500
"""Jobs whose texts a start decodes; of more it reads only what it needs."""

SWEEP_JOBS = 200
"""Pending jobs that the queue sends at a time to be judged under new rules."""

REPORT_READING_SECONDS = 0.004
"""Time after which a page of such a report ends, if rows must be read for it."""

REPORT_JOBS = 500
"""Pending jobs that the queue sends at a time to a scheduler or filter evaluator that starts."""

TRIED_JOBS = 1_000
"""Jobs on which a proposed rule, or a simulation, is tried at a time."""

LOG_CLOSE_SECONDS = 2.0
"""How long the daemon waits at its end until the last lines of the log are written."""

KILL_SECONDS = 10.0
"""Time between the request to a killed job to end, and the end of its process by force."""

COLLECTOR_THRESHOLDS = (5_000, 1, 5_000)
"""Thresholds of the daemon's garbage collector (`gc.set_threshold`).

Each collection stops every thread: those of the first two generations are short (15,000 objects at
most: 3 ms), and those of the third are rare.
"""

LOG_WRITE_INTERVAL_SECONDS = 0.25
"""Least time between two writes of a job file that only add log lines."""

OUTPUT_BYTES_MAX = 1024 * 1024 * 1024
"""Default limit of one opcode's output, before compression."""

OUTPUT_JOB_BYTES_MAX = 1024 * 1024 * 1024
"""Default limit of one job's output, before compression."""

OUTPUT_WRITE_SECONDS = 0.02
"""Least time between two writes of a job's output, and between two notices to its followers."""

OUTPUT_DROPPED_SECONDS = 5.0
"""How often a job's process repeats that it drops output: a new daemon has not heard of it."""

DISK_WATCH_SECONDS = 5.0
"""How often the output reader looks at the disk, and measures it while there is a limit."""

RETENTION_SECONDS = 600.0
"""How often it has jobs purged that ended too long ago."""

DISK_USE_WAIT_SECONDS = 2.0
"""How long the status waits for them."""

OUTPUT_PAGE_BYTES = 1024 * 1024
"""Most stored output in one reply: at least two blocks (`output_blocks`)."""

OUTPUT_WAIT_SECONDS_MAX = 10.0
"""How long a follower's request waits for more output; then the client asks again."""

OUTPUT_WAITS_MAX = 10_000
"""Most requests that wait for more output at one time."""

TEMPORARY_REST_SECONDS = 1.0
"""How long a replaced file rests before another file is written into it."""

UNREAD_REST_SECONDS = 0.1
"""The same if no process has it open: the time in which the kernel opens a file it has found."""

SPARES_AHEAD = 8
"""Spare files that the queue makes while it is quiet: to create one takes up to a millisecond."""

SPARES_REFUSED_SECONDS = 60.0
"""How long the queue makes none after the disk has refused one."""

SPARE_INODES_MAX = 4_096
"""Most replaced files that are kept as spares."""

SPARE_KEEP_SECONDS = 60.0
"""How long a spare may lie unused before it is deleted."""

SPARES_PER_JOB = 2
"""Spare files lent to a job's process: one for ``running``, one for the end."""

AUTHORITY_START_SECONDS = 30.0
"""How long a process with components of its own may take to get ready."""

ORPHAN_SECONDS = 5.0
"""How long a start waits for what a killed daemon has left running: the kernel kills it."""

PLACEMENTS = ("together", "apart")
"""Where lock manager and configuration store live: in the daemon's process, or in their own."""

STOP_SECONDS = 10.0
"""How long the components may take to stop before the daemon stops them by force."""

WATCHDOG_SECONDS = 1.0
"""How often the watchdog checks that each component makes progress."""

WATCHDOG_REST_SECONDS = 5.0
"""How often in the daemon of a node, while each of its components rests."""

HUNG_SECONDS = 60.0
"""A component that works longer at one message hangs, and is replaced (default)."""

START_SILENCE_SECONDS = 60.0
"""How long ``ganger up`` waits for a daemon that starts and tells of no progress."""
