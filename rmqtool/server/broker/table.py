"""All requests of a broker."""

from rmqtool.server.broker.admin.absent import Absent
from rmqtool.server.broker.admin.access import AccessRequests
from rmqtool.server.broker.admin.control import Control
from rmqtool.server.broker.admin.lite import LiteAdmin
from rmqtool.server.broker.admin.status import Status
from rmqtool.server.broker.admin.tables import TableRequests
from rmqtool.server.broker.requests.consuming import Consuming
from rmqtool.server.broker.requests.lite import LiteRequests
from rmqtool.server.broker.requests.lookups import Lookups
from rmqtool.server.broker.requests.pop_answers import PopAnswers
from rmqtool.server.broker.requests.popping import Pops
from rmqtool.server.broker.requests.positions import OffsetRequests
from rmqtool.server.broker.requests.pulling import Pulling
from rmqtool.server.broker.requests.recalling import Recalling
from rmqtool.server.broker.requests.replying import Replying
from rmqtool.server.broker.requests.sending import Sending
from rmqtool.server.broker.requests.transactions import TransactionRequests
from rmqtool.server.dispatch.table import RequestRow, collect

REQUESTS: dict[int, RequestRow] = collect(
    Sending,
    Replying,
    Pulling,
    Consuming,
    TransactionRequests,
    OffsetRequests,
    Lookups,
    TableRequests,
    Status,
    Control,
    AccessRequests,
    Pops,
    PopAnswers,
    LiteRequests,
    LiteAdmin,
    Recalling,
    Absent,
)
"""By request code; those of 5.x too, whatever the release of the broker: access control asks what they need."""
