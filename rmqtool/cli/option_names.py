"""Options of all commands, their values and codes of check, for completion, by ``python -m tests.cli.derive``."""

TEXT = """
acl delete: --backup= --broker= --columns= --dry-run --help --output= --resource= --tz= --wide --yes -h -n -o= -y
acl list: --columns= --help --output= --tz= --wide -h -o=
acl set: --action= --backup= --broker= --columns= --default --deny --dry-run --help --output= --resource= --source-ip=
  --tz= --wide --yes -h -n -o= -y
append: --broker-conf= --columns= --engine= --help --keep-times --output= --progress= --sync --tz= --wide -h -o=
apply: --backup= --broker-conf= --broker= --columns= --dry-run --help --output= --prune --tz= --wide --yes -h -n -o=
  -y
backup create: --broker-conf= --columns= --help --incremental --output= --progress= --rate= --tz= --wide -h -o=
backup list: --columns= --help --output= --wide -h -o=
backup restore: --broker-conf= --columns= --help --name= --output= --progress= --wide -h -o=
backup verify: --columns= --help --name= --output= --progress= --wide -h -o=
broker-config diff: --columns= --defaults --file= --help --name= --output= --own --tz= --wide -h -o=
broker-config set: --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
broker-config show: --columns= --help --limit= --name= --output= --tz= --wide -h -o=
browse: --broker-conf= --help --tz= -h
check: --broker-conf= --columns= --engine= --help --limit-per-code= --output= --progress= --severity= --tz= --wide -h
  -o=
checkpoint: --broker-conf= --columns= --help --output= --tz= --wide -h -o=
clean: --accept-loss --backup= --broker-conf= --columns= --delete --dry-run --files= --help --hours= --output=
  --progress= --table= --tz= --wide --yes -h -n -o= -y
client list: --columns= --group= --help --limit= --output= --tz= --wide -g= -h -o=
client producers: --columns= --group= --help --limit= --output= --tz= --wide -g= -h -o=
client show: --columns= --help --limit= --output= --stuck --tz= --wide -h -o=
client stack: --client= --columns= --help --output= --tz= --wide -h -o=
cluster clean: --accept-loss --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
cluster list: --columns= --help --output= --tz= --wide -h -o=
cluster replicas: --columns= --help --output= --tz= --wide -h -o=
cold-data list: --columns= --group= --help --output= --tz= --wide -g= -h -o=
cold-data remove: --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
cold-data set: --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
commitlog dump: --body-schema= --body= --broker-conf= --columns= --field= --follow --help --key= --limit= --offset=
  --output= --property= --queue-offset= --queue= --records --since= --tag= --topic= --tz= --until= --where= --wide -f
  -h -o= -q= -t=
commitlog hexdump: --broker-conf= --help --limit= --offset= --tz= -h
compare: --broker-conf= --broker= --columns= --help --limit= --output= --sample= --tz= --wide -h -o=
config: --bak --broker-conf= --broker= --columns= --help --output= --tz= --wide --yaml -h -o=
consolidate: --broker-conf= --columns= --dry-run --help --output= --progress= --tz= --wide -h -n -o=
consume: --ack --acl= --all-topics --body-schema= --body= --columns= --exit-idle= --field= --follow --from= --group=
  --help --limit= --namesrv= --orderly --output= --property= --sql= --tag= --tls-config= --where= --wide -f -g= -h -o=
consumequeue dump: --all --broker-conf= --columns= --help --key= --limit= --offset= --output= --property=
  --queue-offset= --queue= --since= --tag= --topic= --tz= --until= --where= --wide -h -o= -q= -t=
controller elect: --backup= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
controller forget: --backup= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
controller list: --columns= --help --output= --tz= --wide -h -o=
controller replicas: --columns= --help --output= --tz= --wide -h -o=
controller-config set: --backup= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
controller-config show: --columns= --help --name= --output= --tz= --wide -h -o=
convert: --broker-conf= --columns= --dry-run --help --output= --progress= --to= --tz= --wide -h -n -o=
delay due: --all --at= --broker-conf= --columns= --help --level= --limit= --output= --queue= --since= --topic= --tz=
  --until= --wide -h -o= -q= -t=
delay list: --all --at= --broker-conf= --columns= --help --output= --tz= --wide -h -o=
diff: --broker-conf= --columns= --help --limit= --other-conf= --output= --progress= --table= --tz= --wide -h -o=
dispatch: --backup= --broker-conf= --columns= --dry-run --help --output= --progress= --table= --tz= --wide -h -n -o=
dlq export: --body-schema= --body= --broker-conf= --columns= --field= --group= --help --limit= --output= --property=
  --since= --topic= --tz= --until= --where= --wide -g= -h -o= -t=
dlq list: --broker-conf= --columns= --group= --help --limit= --output= --since= --topic= --tz= --until= --wide -g= -h
  -o= -t=
dlq requeue: --broker-conf= --columns= --dry-run --gone= --help --id= --output= --to= --tz= --wide --yes -h -n -o= -y
doctor: --columns= --help --output= --severity= --tz= --wide -h -o=
du: --broker-conf= --by= --columns= --help --limit= --output= --progress= --since= --sort= --top= --topic= --tz=
  --until= --wide -h -o= -t=
dump: --body-schema= --broker-conf= --codec= --columns= --help --master= --output= --partition-by= --progress=
  --runner= --since-last --source= --to= --topic= --tz= --where= --wide -h -o= -t=
dump-to-parquet: --body-schema= --broker-conf= --codec= --columns= --engine= --file-size= --help --master= --offset=
  --output= --overwrite --partition-by= --progress= --row-group-size= --runner= --since-last --since= --split-size=
  --topic= --tz= --until= --where= --wide -h -o= -t=
evidence: --broker-conf= --columns= --help --hide-names --most= --output= --progress= --tz= --wide -h -o=
explain: --columns= --help --output= --wide -h -o=
export: --broker-conf= --columns= --help --output= --progress= --tz= --wide -h -o=
grep: --body-schema= --body= --broker-conf= --columns= --count --field= --fixed --help --ignore-case --in= --invert
  --key= --limit= --neighbours= --offset= --output= --progress= --property= --queue-offset= --queue= --since= --tag=
  --topic= --tz= --until= --where= --wide -C= -F -h -i -o= -q= -t= -v
group clone: --backup= --broadcast= --broker-conf= --broker= --clamp --columns= --dry-run --help --output=
  --to-broadcast= --topic= --tz= --wide --yes -h -n -o= -t= -y
group create: --attribute= --backup= --broadcasting --broker= --columns= --consume --dry-run --help --max-retries=
  --no-broadcasting --no-consume --no-ordered --ordered --output= --retry-queues= --tz= --wide --yes -h -n -o= -y
group delete: --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
group diff: --all --bak --broker-conf= --broker= --columns= --group= --help --limit= --output= --queue= --topic= --tz=
  --wide -g= -h -o= -q= -t=
group inflight: --broker-conf= --columns= --group= --help --limit= --output= --queue= --topic= --tz= --wide -g= -h -o=
  -q= -t=
group lag: --broadcast= --broker-conf= --broker= --by= --columns= --group= --help --lagging --limit= --output=
  --prometheus= --queue= --rounds= --topic= --tz= --watch= --wide -g= -h -o= -q= -t=
group list: --broker-conf= --columns= --help --output= --tz= --wide -h -o=
group mode: --backup= --broker= --columns= --dry-run --help --output= --share= --tz= --wide --yes -h -n -o= -y
group offsets: --broadcast= --broker-conf= --broker= --columns= --group= --help --limit= --output= --queue= --topic=
  --tz= --wide -g= -h -o= -q= -t=
group reset: --backup= --broadcast= --broker-conf= --broker= --clamp --columns= --dry-run --from-csv= --help --output=
  --queue= --shift= --to-earliest --to-latest --to-offset= --to-time= --topic= --tz= --wide --yes -h -n -o= -q= -t= -y
group update: --attribute= --backup= --broadcasting --broker= --columns= --consume --dry-run --help --max-retries=
  --no-broadcasting --no-consume --no-ordered --ordered --output= --retry-queues= --tz= --wide --yes -h -n -o= -y
import: --broker-conf= --columns= --engine= --help --map= --new-times --output= --progress= --topics-of= --tz= --wide
  -h -o=
index dump: --broker-conf= --columns= --headers --help --limit= --offset= --output= --since= --tz= --until= --wide -h
  -o=
info: --broker-conf= --columns= --help --output= --table= --tz= --wide -h -o=
init: --broker-conf= --columns= --engine= --help --output= --tz= --wide -h -o=
kv delete: --backup= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
kv set: --backup= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
kv show: --columns= --help --output= --tz= --wide -h -o=
lite brokers: --columns= --help --output= --tz= --wide -h -o=
lite client: --columns= --help --output= --tz= --wide -h -o=
lite dispatch: --broker= --client= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
lite lag: --columns= --help --limit= --lite-topic= --output= --tz= --wide -h -o=
lite list: --columns= --help --limit= --output= --topic= --tz= --wide -h -o= -t=
lite show: --columns= --help --output= --tz= --wide -h -o=
manual: --columns= --help --man --output= --wide -h -o=
message consume-directly: --client= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
mirror: --acl= --broker-conf= --columns= --engine= --follow --help --keep-times --limit= --namesrv= --output=
  --progress= --tls-config= --wide -f -h -o=
namesrv: --columns= --help --kv-config= --listen= --output= --tls-config= --wide -h -o=
namesrv-config set: --backup= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
namesrv-config show: --columns= --help --name= --output= --tz= --wide -h -o=
offsets: --bak --broker-conf= --columns= --group= --help --limit= --output= --queue= --topic= --tz= --wide -g= -h -o=
  -q= -t=
order-conf delete: --backup= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
order-conf set: --backup= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
order-conf show: --columns= --help --output= --tz= --wide -h -o=
plain-acl addresses: --columns= --help --output= --tz= --wide -h -o=
plain-acl delete: --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
plain-acl files: --columns= --help --output= --tz= --wide -h -o=
plain-acl list: --columns= --help --output= --tz= --wide -h -o=
plain-acl set: --admin --backup= --broker= --columns= --default-group-perm= --default-topic-perm= --dry-run
  --group-perm= --help --no-admin --output= --secret-file= --topic-perm= --tz= --white-address= --wide --yes -h -n -o=
  -y
plain-acl set-addresses: --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
query-id: --body-schema= --body= --broker-conf= --columns= --field= --help --limit= --output= --scan --topic= --tz=
  --wide -h -o= -t=
query-key: --body-schema= --body= --broker-conf= --columns= --field= --help --limit= --output= --scan --since= --tz=
  --until= --wide -h -o=
query-offset: --body-schema= --body= --broker-conf= --broker= --columns= --engine= --field= --help --max-msgs=
  --output= --status --tz= --wide -h -o=
query-time: --body-schema= --body= --broker-conf= --broker= --columns= --engine= --field= --help --output= --tz=
  --upper --wide -h -o=
rebalance plan: --broker-conf= --broker= --clients-of= --columns= --consumer= --help --inner= --output= --room=
  --strategy= --tz= --was= --wide -c= -h -o=
rebuild: --backup= --broker-conf= --columns= --dry-run --help --output= --progress= --table= --tz= --wide --yes -h -n
  -o= -y
recover: --accept-loss --backup= --broker-conf= --columns= --dry-run --engine= --exactly --fix-delay-times --help
  --output= --progress= --quick --table= --tz= --wide --with= --yes -h -n -o= -y
redact: --also= --backup= --broker-conf= --columns= --dry-run --help --id= --keep-backup --key= --offset= --output=
  --progress= --property= --queue-offset= --queue= --since= --table= --tag= --topic= --tz= --until= --where= --wide
  --yes -h -n -o= -q= -t= -y
replay: --acl= --batch= --broker-conf= --columns= --dry-run --engine= --group= --help --journal= --key= --limit=
  --namesrv= --offset= --output= --progress= --property= --queue-offset= --queue= --rate= --since= --tag=
  --tls-config= --to= --topic= --tz= --until= --where= --wide -g= -h -n -o= -q= -t=
replicas: --broker-conf= --columns= --help --output= --progress= --table= --tz= --wide -h -o=
report duplicates: --broker-conf= --by= --columns= --help --limit= --output= --progress= --runner= --since= --topic=
  --tz= --until= --wide -h -o= -t=
report html: --at= --broker-conf= --columns= --help --output= --progress= --redact --tz= --wide -h -o=
report lag: --broker-conf= --columns= --group= --help --limit= --output= --plot --progress= --runner= --topic= --tz=
  --wide -g= -h -o= -t=
report producers: --broker-conf= --columns= --help --limit= --output= --plot --progress= --runner= --since= --topic=
  --tz= --until= --wide -h -o= -t=
report retries: --broker-conf= --columns= --group= --help --limit= --output= --progress= --runner= --since= --tz=
  --until= --wide -g= -h -o=
report sizes: --broker-conf= --columns= --help --limit= --output= --plot --progress= --runner= --since= --topic= --tz=
  --until= --wide -h -o= -t=
report traffic: --broker-conf= --by= --columns= --help --limit= --output= --plot --progress= --runner= --since=
  --topic= --tz= --until= --wide -h -o= -t=
report unconsumed: --broker-conf= --columns= --group= --help --limit= --output= --progress= --runner= --since=
  --topic= --tz= --until= --wide -g= -h -o= -t=
retention: --at= --broker-conf= --columns= --help --output= --table= --tz= --wide -h -o=
retry list: --broker-conf= --columns= --group= --help --limit= --output= --since= --state= --topic= --tz= --until=
  --wide -g= -h -o= -t=
run: --broker-conf= --columns= --help --once --output= --progress= --transactions= --tz= --until= --wide -h -o=
salvage: --broker-conf= --columns= --help --output= --progress= --to= --tz= --wide -h -o=
send: --acl= --batch= --columns= --delay= --engine= --group= --help --key= --lines --namesrv= --oneway --output=
  --property= --queue= --rate= --tag= --tls-config= --transaction= --wide -g= -h -o= -q=
send-rtt: --broker= --columns= --dry-run --help --messages= --output= --size= --tz= --wide --yes -h -n -o= -y
serve: --acl-config= --broker-conf= --cluster= --columns= --create --engine= --follow --help --listen= --metrics=
  --name= --namesrv-listen= --namesrv= --offsets= --output= --read-only --tls-config= --tz= --until= --wide -h -o=
split: --broker-conf= --columns= --dry-run --help --log-dir= --output= --progress= --topic= --tz= --wide -h -n -o=
sql: --body-schema= --broker-conf= --columns= --help --output= --overwrite --progress= --runner= --to= --tz= --wide -h
  -o=
static-topic create: --backup= --broker= --columns= --dry-run --help --output= --queues= --tz= --wide --yes -h -n -o=
  -y
static-topic list: --broker-conf= --columns= --help --limit= --output= --topic= --tz= --wide -h -o= -t=
static-topic remap: --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
static-topic show: --broker-conf= --columns= --help --output= --tz= --wide -h -o=
tier check: --broker-conf= --columns= --help --output= --progress= --tz= --wide -h -o=
tier list: --broker-conf= --columns= --help --output= --segments --tz= --wide -h -o=
topic create: --attribute= --backup= --broker= --columns= --dry-run --help --output= --perm= --queues= --read-queues=
  --tz= --wide --write-queues= --yes -h -n -o= -y
topic delete: --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
topic latest: --body-schema= --body= --broker-conf= --columns= --field= --help --key= --limit= --output= --tz= --wide
  -h -o=
topic list: --broker-conf= --columns= --help --limit= --output= --system --topic= --tz= --wide -h -o= -t=
topic perm: --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
topic show: --broker-conf= --columns= --help --output= --table= --tz= --wide -h -o=
topic unused: --broker-conf= --columns= --help --output= --tz= --wide -h -o=
topic update: --attribute= --backup= --broker= --columns= --dry-run --help --output= --perm= --queues= --read-queues=
  --tz= --wide --write-queues= --yes -h -n -o= -y
trace: --body= --broker-conf= --columns= --help --output= --scan --table= --trace-topic= --tz= --wide -h -o=
transaction list: --broker-conf= --columns= --group= --help --limit= --output= --since= --state= --topic= --tz=
  --until= --wide -g= -h -o= -t=
transaction show: --broker-conf= --columns= --help --output= --tz= --wide -h -o=
truncate: --backup= --broker-conf= --columns= --dry-run --help --output= --progress= --table= --tz= --wide --yes -h -n
  -o= -y
undo: --backup= --broadcast= --broker-conf= --columns= --dry-run --force --forget --help --output= --progress= --tz=
  --wide --yes -h -n -o= -y
user create: --backup= --broker= --columns= --dry-run --help --no-super --output= --password-file= --super --tz=
  --wide --yes -h -n -o= -y
user delete: --backup= --broker= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
user list: --columns= --help --output= --tz= --wide -h -o=
user update: --backup= --broker= --columns= --disable --dry-run --enable --help --no-super --output= --password-file=
  --super --tz= --wide --yes -h -n -o= -y
warm-up: --columns= --help --output= --remove --wide -h -o=
why: --broker-conf= --columns= --help --limit= --output= --progress= --tz= --wide -h -o=
write-perm add: --backup= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
write-perm wipe: --backup= --columns= --dry-run --help --output= --tz= --wide --yes -h -n -o= -y
"""

VALUES = """
append --engine: auto 4.9 5.3 5.4 5.5
check --severity: error warning info
check --engine: auto 4.9 5.3 5.4 5.5
cluster clean part: log queues unused
convert --to: store controller 5.5
doctor --severity: error warning info
du --by: topic queue tag group host day hour size part
du --sort: bytes messages name
dump --to: delta iceberg
dump --codec: zstd snappy gzip none
dump --runner: spark local
dump-to-parquet --codec: zstd snappy gzip none
dump-to-parquet --runner: spark local
dump-to-parquet --engine: spark local
grep --in: body key property host
group lag --by: queue topic group
import --engine: auto 4.9 5.3 5.4 5.5
init --engine: auto 4.9 5.3 5.4 5.5
manual page: emergencies commands installing machine-output recipes writing services serving administration library
  client consuming api sql spark remote mqadmin promises formats settings developing glossary
mirror --engine: auto 4.9 5.3 5.4 5.5
query-offset --engine: auto 4.9 5.3 5.4 5.5
query-time --engine: auto 4.9 5.3 5.4 5.5
rebalance plan --strategy: AVG AVG_BY_CIRCLE CONSISTENT_HASH MACHINE_ROOM MACHINE_ROOM_NEARBY
rebalance plan --inner: AVG AVG_BY_CIRCLE CONSISTENT_HASH MACHINE_ROOM MACHINE_ROOM_NEARBY
rebuild part...: consumequeue index checkpoint config timer compaction files tiered-metadata
recover --engine: auto 4.9 5.3 5.4 5.5
replay --engine: auto 4.9 5.3 5.4 5.5
report duplicates --by: id key
report duplicates --runner: auto spark local
report lag --runner: auto spark local
report producers --runner: auto spark local
report retries --runner: auto spark local
report sizes --runner: auto spark local
report traffic --by: hour minute
report traffic --runner: auto spark local
report unconsumed --runner: auto spark local
retry list --state: scheduled waiting in-flight retried dead done
salvage --to: ndjson parquet
send --transaction: commit rollback
send --engine: auto 4.9 5.3 5.4 5.5
serve --engine: auto 4.9 5.3 5.4 5.5
sql --runner: auto spark duckdb
transaction list --state: pending committed rolled-back given-up passed
"""

CODES = """
file-unreadable file-size file-gap file-duplicate file-misnamed file-foreign store-role file-ignored not-checked
abort-present store-in-use recovery-unfinished undo-unfinished journal-unreadable checkpoint-missing checkpoint-empty
checkpoint-ahead log-absent log-crc log-damage log-torn log-blank-missing log-blank-size log-stale log-position
log-properties log-port log-body log-batch-numbers log-prepared log-time-backwards log-ordinal-gap log-ordinal-repeat
log-topic cq-missing cq-behind cq-starts-late cq-hole cq-stale cq-no-message cq-other-message cq-order cq-size cq-tags
cq-deliver-time cq-delay-hash cq-empty-file ext-damage ext-missing bcq-queue-missing bcq-missing bcq-behind bcq-hole
bcq-torn bcq-stale bcq-no-message bcq-repeat bcq-base bcq-count bcq-size bcq-tags bcq-time bcq-form cq-batch
rcq-unreadable rcq-missing rcq-behind rcq-other rcq-size rcq-tags rcq-time rcq-no-message rcq-end rcq-begin rcq-ahead
config-database rcq-note index-unreadable index-absent index-count index-header index-slots index-chain index-entry
index-ghost index-time index-missing index-behind config-broken config-bak-broken config-missing config-tmp
topic-unknown topics-missing topic-deleted topic-remade queue-unread group-unknown offset-ahead offset-expired
delay-offset-ahead delay-offset-lost conf-size conf-store-type conf-unknown conf-release conf-value timer-wheel-size
timer-wheel-missing timer-slot-outside timer-slot-misplaced timer-chain timer-log-damage timer-log-torn
timer-no-message timer-other-message timer-expired timer-properties timer-deliver-time timer-twice timer-lost
timer-behind timer-checkpoint-empty timer-checkpoint-ahead compaction-foreign compaction-unpaired compaction-half
compaction-size compaction-hole compaction-torn compaction-no-record compaction-other-record compaction-order
compaction-no-key compaction-unqueued compaction-queue-missing compaction-missing compaction-behind compaction-ahead
compaction-checkpoint compaction-checkpoint-ahead compaction-unfinished compaction-unused pop-database pop-record
pop-record-key pop-ahead store-database store-database-entry timeline-no-message half-no-message
store-index-no-message tiered-ignored tiered-deleted tiered-stopped tiered-missing tiered-short tiered-gap
tiered-unknown tiered-message tiered-long tiered-differs tiered-unlisted tiered-index tiered-undelivered tiered-lost
epoch-broken epoch-order epoch-ahead epoch-inside epoch-stale epoch-missing identity-broken dledger-entry dledger-torn
dledger-gap dledger-term dledger-stale dledger-crc dledger-index dledger-lost dledger-uncommitted dledger-refused
dledger-queue-cut namesrv-silent namesrv-differ broker-silent broker-no-master clock-skew slave-behind disk-full
disk-filling topic-reads-less topic-differs static-incomplete static-broker-away static-unfinished static-differs
group-differs group-offline clients-idle queues-uneven retries-many dead-letters-grow setting-unknown
"""
