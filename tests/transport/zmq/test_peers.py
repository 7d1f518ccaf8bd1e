"""Which peers are connected, by libzmq's events: their descriptors are used again and again."""

from __future__ import annotations

from ganger.transport.zmq.peers import Backlog, Connections, Credentials, remote_credentials


def connected(*descriptors: int) -> Connections:
    connections = Connections()
    for descriptor in descriptors:
        connections.accepted(descriptor)
    return connections


def test_a_peer_that_sent_a_message_has_left_when_its_connection_ended() -> None:
    connections = connected(5)
    connections.heard(5, b"a")
    assert connections.take_left() == []
    connections.ended(5)
    assert connections.take_left() == [b"a"]
    assert connections.take_left() == []


def test_a_peer_that_never_sent_a_message_leaves_without_a_name() -> None:
    connections = connected(5)
    connections.ended(5)
    connections.ended(6)
    assert connections.take_left() == []
    assert connections.count == 0


def test_a_descriptor_that_is_used_again_is_another_peer() -> None:
    connections = connected(5)
    connections.heard(5, b"a")
    connections.ended(5)
    connections.accepted(5)
    assert connections.is_new(5, b"b")
    connections.heard(5, b"b")
    assert not connections.is_new(5, b"b")
    assert connections.take_left() == [b"a"]
    connections.ended(5)
    assert connections.take_left() == [b"b"]


def test_a_message_read_after_the_end_names_its_peer_as_gone() -> None:
    connections = connected(5)
    connections.ended(5)
    connections.heard(5, b"a")
    assert connections.take_left() == [b"a"]
    assert connections.count == 0


def test_last_words_read_when_another_has_the_descriptor_name_the_earlier_peer_as_gone() -> None:
    # Also where the numbers of libzmq begin again.
    for first, second in (
        (b"L\0\0\0\0\1", b"L\0\0\0\0\2"),
        (b"L\0\xff\xff\xff\xff", b"L\0\0\0\0\0"),
    ):
        connections = connected(5)
        connections.ended(5)
        connections.accepted(5)
        connections.heard(5, first)
        assert connections.take_left() == []
        connections.heard(5, second)
        assert connections.take_left() == [first]
        connections.heard(5, first)
        connections.heard(5, second)
        assert connections.take_left() == []
        connections.ended(5)
        assert connections.take_left() == [second]


def test_a_connection_that_ended_before_it_was_turned_away_is_not_counted_as_leaving() -> None:
    connections = connected(5)
    connections.ended(5)
    connections.turned_away()
    assert connections.count == 0
    connections.accepted(6)
    assert connections.count == 1


def test_a_peer_leaves_once_even_if_its_last_messages_are_read_late() -> None:
    connections = connected(5)
    connections.heard(5, b"a")
    connections.ended(5)
    connections.heard(5, b"a")
    assert connections.take_left() == [b"a"]


def test_silent_peers_neither_came_nor_sent_since_the_last_look() -> None:
    connections = connected(5, 6)
    assert connections.take_silent() == []
    connections.spoke.add(6)
    connections.accepted(7)
    connections.spoke.add(9)
    assert connections.take_silent() == [5]
    assert connections.take_silent() == [5, 6, 7]
    connections.ended(6)
    assert connections.take_silent() == [5, 7]


def test_a_peer_that_is_turned_away_no_longer_counts_while_it_leaves() -> None:
    connections = connected(5, 6, 7)
    connections.turned_away()
    assert connections.count == 2
    connections.ended(6)
    assert connections.count == 2
    connections.ended(7)
    assert connections.count == 1


def test_a_remote_peer_is_named_by_its_key_and_address() -> None:
    expected = Credentials(kind="remote", key="KEY", address="::1")
    assert remote_credentials("::1", "KEY") == expected


# What waits for a peer.


class Sent:
    """A mark that a test sets."""

    done = False


def test_bytes_wait_until_a_frame_that_came_later_has_left() -> None:
    backlog = Backlog()
    first, second = Sent(), Sent()
    assert not backlog.wants_mark(b"a", 1_000)
    assert backlog.waiting(b"a") == 0
    assert backlog.wants_mark(b"a", Backlog.MARK_BYTES)
    backlog.marked(b"a", first)
    assert backlog.waiting(b"a") == Backlog.MARK_BYTES + 1_000
    assert backlog.wants_mark(b"a", Backlog.MARK_BYTES)
    backlog.marked(b"a", second)
    assert backlog.wants_mark(b"b", Backlog.MARK_BYTES)
    backlog.marked(b"b", Sent())
    assert backlog.total() == 3 * Backlog.MARK_BYTES + 1_000
    first.done = True
    assert backlog.waiting(b"a") == Backlog.MARK_BYTES
    second.done = True
    assert backlog.waiting(b"a") == 0
    assert backlog.total() == Backlog.MARK_BYTES


def test_what_waits_for_a_peer_that_left_is_forgotten() -> None:
    backlog = Backlog()
    backlog.wants_mark(b"a", 2 * Backlog.MARK_BYTES)
    backlog.marked(b"a", Sent())
    backlog.wants_mark(b"a", 100)
    backlog.forget(b"a")
    assert backlog.total() == 0
    assert not backlog.wants_mark(b"a", Backlog.MARK_BYTES - 1)
