"""A job followed with its output: the end of the job is not the end of its output."""

from __future__ import annotations

from tests.transport.client.talk import TIMEOUT, Talk

from ganger.storage.jobs.job_views import StatusChange
from ganger.storage.jobs.jobs import JobStatus
from ganger.storage.queue_files import output_blocks
from ganger.transport import messages
from ganger.transport.client.following import OutputFollowing
from ganger.transport.client.output_reading import OutputReading


def test_output_of_the_last_moment_comes_before_the_final_status() -> None:
    talk = Talk()
    following = OutputFollowing(
        talk.session,
        reading=OutputReading(1),
        log=False,
        now=talk.now,
        deadline=None,
        timeout_seconds=TIMEOUT,
    )
    assert following.take(talk.now) is None
    watch, asked = talk.turn()
    assert isinstance(asked.message, messages.ReadOutput)
    # The daemon has waited in vain for output; then the job prints, and ends at once.
    talk.reply(messages.OutputPage(data=b"", size=0), asked.number)
    assert following.take(talk.now) is None
    talk.turn()
    talk.tell(watch.number, 1, JobStatus.SUCCESS)
    assert following.take(talk.now) is None
    (asked,) = (each for each in talk.turn() if isinstance(each.message, messages.ReadOutput))
    printed = [output_blocks.Segment(output_blocks.STDOUT, b"last words\n")]
    data = output_blocks.Packer().pack(0, printed, 0)
    talk.reply(messages.OutputPage(data=data, size=len(data)), asked.number)
    chunk = following.take(talk.now)
    assert getattr(chunk, "data", None) == b"last words\n"
    assert following.take(talk.now) is None
    talk.turn()
    talk.reply(messages.OutputPage(data=b"", size=len(data)))
    last = following.take(talk.now)
    assert isinstance(last, StatusChange)
    assert following.is_over
