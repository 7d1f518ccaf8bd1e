"""The typed addresses of all components: a message to the wrong one is a type error."""

from __future__ import annotations

from ...transport.envelopes import Address
from ...transport.messages import (
    AuthorityListenerMessage,
    AuthorityMessage,
    ConfigMessage,
    ExecutorMessage,
    FilterMessage,
    ListenerMessage,
    LockMessage,
    NodeHubMessage,
    NodeKeeperMessage,
    NodeLinkMessage,
    QueueMessage,
    RapiKeeperMessage,
    ReaderMessage,
    SchedulerMessage,
    SupervisorMessage,
)

AUTHORITY = Address[AuthorityMessage]("authority")
AUTHORITY_LISTENER = Address[AuthorityListenerMessage]("authority_listener")
CONFIG_STORE = Address[ConfigMessage]("config_store")
EXECUTOR = Address[ExecutorMessage]("executor")
FILTER_EVALUATOR = Address[FilterMessage]("filter_evaluator")
JOB_QUEUE = Address[QueueMessage]("job_queue")
LOCK_MANAGER = Address[LockMessage]("lock_manager")
NODE_HUB = Address[NodeHubMessage]("node_hub")
NODE_KEEPER = Address[NodeKeeperMessage]("node_keeper")
NODE_LINK = Address[NodeLinkMessage]("node_link")
OUTPUT_READER = Address[ReaderMessage]("output_reader")
RAPI_KEEPER = Address[RapiKeeperMessage]("rapi_keeper")
SCHEDULER = Address[SchedulerMessage]("scheduler")
SUPERVISOR = Address[SupervisorMessage]("supervisor")
WIRE_LISTENER = Address[ListenerMessage]("wire_listener")
