"""The accounts of a broker, for tools of 4.9 (broker.processor.AdminBrokerProcessor, 4.9.8)."""

from typing import TYPE_CHECKING

from formats.fastjson.declare import to_json
from formats.fastjson.dialects import BODY
from formats.fastjson.write import dumps
from formats.model.topics import DataVersion
from formats.remoting import admin as a
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.errors import BadValue, RmqError
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.dispatch.table import Call, handles

if TYPE_CHECKING:
    from rmqtool.server.access.control import AccessControl

_UPDATE_FAILED, _DELETE_FAILED, _WHITES_FAILED = 209, 210, 211  # of 4.9; they mean something else in 5.x


class AccessRequests:
    """Requests that show or change accounts.

    Args:
        access: None without access control; then these requests are refused.
    """

    def __init__(self, context: BrokerContext, access: "AccessControl | None") -> None:
        self._context, self._access = context, access

    def _control(self, code: int, *, writes: bool = True) -> "AccessControl":
        if self._access is None:
            raise Failed(code, "aclEnable is false: there is no access control")
        if writes and self._context.settings.read_only:
            raise Failed(code, "the store is only read, and so are its accounts")
        return self._access

    def _failure(self, error: OSError | RmqError, code: int) -> Failed:
        """The answer to a refused change."""
        if isinstance(error, BadValue):
            return Failed(code, str(error))
        return self._context.failure("accounts cannot be changed", error, code)

    @handles(C.UPDATE_AND_CREATE_ACL_CONFIG)
    async def update(self, call: Call[a.AccessAccount, None]) -> Command:
        """Request 50."""
        from rmqtool.server.access.files import Account

        control = self._control(_UPDATE_FAILED)
        header = call.header
        account = Account(
            access_key=header.access_key,
            secret_key=header.secret_key or "",
            white_remote_address=header.white_remote_address,
            admin=header.admin,
            default_topic_perm=header.default_topic_perm,
            default_group_perm=header.default_group_perm,
            topic_perms=_split(header.topic_perms),
            group_perms=_split(header.group_perms),
        )
        try:
            await control.update(account)
        except (OSError, RmqError) as err:
            raise self._failure(err, _UPDATE_FAILED) from None
        return call.answer()

    @handles(C.DELETE_ACL_CONFIG)
    async def delete(self, call: Call[a.AccessKey, None]) -> Command:
        """Request 51."""
        control = self._control(_DELETE_FAILED)
        key = call.header.access_key
        try:
            deleted = await control.delete(key)
        except (OSError, RmqError) as err:
            raise self._failure(err, _DELETE_FAILED) from None
        if not deleted:
            remark = f"The accesskey[{key}] corresponding to accessConfig has been deleted failed."
            raise Failed(_DELETE_FAILED, remark)
        return call.answer()

    @handles(C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
    async def set_whites(self, call: Call[a.SetWhiteAddresses, None]) -> Command:
        """Request 53."""
        control = self._control(_WHITES_FAILED)
        header = call.header
        patterns = [each for each in header.global_white_addrs.split(",") if each]
        try:
            known = await control.set_whites(patterns, header.acl_file_full_path)
        except (OSError, RmqError) as err:
            raise self._failure(err, _WHITES_FAILED) from None
        if not known:
            remark = f"The globalWhiteAddresses[{header.global_white_addrs}] has been updated failed."
            raise Failed(_WHITES_FAILED, remark)
        return call.answer()

    @handles(C.GET_BROKER_CLUSTER_ACL_INFO)
    async def show_version(self, call: Call[None, None]) -> Command:
        """Request 52."""
        control = self._control(ResponseCode.SYSTEM_ERROR, writes=False)
        versions, settings = control.versions, self._context.settings
        default = versions.get(control.path, DataVersion(state_version=None))
        reply = a.AccessVersion(
            version=dumps(to_json(default), BODY).decode(),
            all_acl_file_version=dumps({path: to_json(version) for path, version in versions.items()}, BODY).decode(),
            broker_name=settings.name,
            broker_addr=settings.address,
            cluster_name=settings.cluster,
        )
        return call.answer(reply)

    @handles(C.GET_BROKER_CLUSTER_ACL_CONFIG)
    async def list_accounts(self, call: Call[None, None]) -> Command:
        """Request 54: with the secrets, as a real broker answers it."""
        control = self._control(ResponseCode.SYSTEM_ERROR, writes=False)
        accounts = [
            a.PlainAccount(
                access_key=account.access_key,
                secret_key=account.secret_key,
                white_remote_address=account.white_remote_address,
                admin=account.admin,
                default_topic_perm=account.default_topic_perm,
                default_group_perm=account.default_group_perm,
                topic_perms=None if account.topic_perms is None else list(account.topic_perms),
                group_perms=None if account.group_perms is None else list(account.group_perms),
            )
            for account in control.accounts
        ]
        whites = list(control.whites)
        return call.answer(body=a.AccessAccounts(global_white_addrs=whites, plain_access_configs=accounts))


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [each for each in text.split(",") if each]
