"""A grid whose nodes are in this process, to test what server and nodes say to each other without waiting for servers.

Messages go through Flower's own serialisation both ways, so that nothing is shared; a node's state is its own, as a
SuperNode keeps it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class HereGrid(Grid):
    """Runs each message on its node's app when it is pushed.

    Attributes:
        dead: nodes that do not answer.
        spoil: changes a node's reply, given the node's number.
    """

    def __init__(self, apps: list[ClientApp], run_config: dict[str, Any] | None = None) -> None:
        self._apps = {100 + number: app for number, app in enumerate(apps)}
        self._run_config = dict(run_config or {})
        self._contexts = {node: self._context_of(node, node - 100) for node in self._apps}
        # As the process of a ServerApp knows whose it is.
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self._replies: dict[str, Message] = {}
        self._count = 0
        self.dead: set[int] = set()
        self.exchanges = 0
        self.spoil: Callable[[int, Message, Message], Message] = lambda worker, message, reply: reply

    def _context_of(self, node: int, partition: int) -> Context:
        return Context(1, node, {"partition-id": partition}, RecordDict(), dict(self._run_config))

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self._apps)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        self.exchanges += 1
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        node = message.metadata.dst_node_id
        self._count += 1
        name = f"message-{self._count}"
        message = copy.deepcopy(message)
        message.metadata.__dict__["_message_id"] = name
        if node in self.dead:
            return name
        try:
            reply = self._apps[node](message, self._contexts[node])
        except Exception as error:
            reason = f"{type(error)}:<'{error}'>"
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
        self._replies[name] = self.spoil(node - 100, message, copy.deepcopy(reply))
        return name

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(name) for name in list(message_ids) if name in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))
