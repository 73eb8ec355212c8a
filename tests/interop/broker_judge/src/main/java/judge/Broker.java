package judge;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A whole broker with its name server and unmodified clients in one JVM.
 *
 * One request a line on stdin, one answer a line on stdout, both JSON:
 * <pre>
 * {"command": "boot", "store": path, "config": {name: value}, "namesrv": other name servers that are to know it,
 *  "follows": address of the name server of its master, for a replica,
 *  "waits": false for a member of a group that is elected later, when more of them run}
 * {"command": "controller", "store": path, "fileSize": of its DLedger log}   a controller of 5.x; the answer is its address
 * {"command": "log"}   where the broker's log ends, and the role that it has now
 * {"command": "connect", "namesrv": address, "broker": address}   clients only, of a broker that runs elsewhere
 * {"command": "topic", "topic": t}   made as a send makes it, 4 queues
 * {"command": "send", "topic": t, "keys": k, "queueId": the client chooses without it, ...}
 *     where ... is "tag": t, "body": text that is the keys without it, "base64": body, "flag": n, "level": delay level,
 *     "properties": {name: value}; the answer is the send result
 * {"command": "sendMany", "topic": t, "count": n, "threads": n, "prefix": of the keys, "how": sync | async | oneway};
 *     the answer is the send results
 * {"command": "sendBatch", "messages": [as for send, without queueId]}
 * {"command": "sendHalf", "group": g, "topic": t, "keys": k, "answer": how it is ended at once, "checked": ... on check}
 * {"command": "request", "code": n, "fields": {name: value}, "base64": body}   to the broker, as it is
 * {"command": "signed", "accessKey": k, "secretKey": s, ...}   as an account, see Signed
 * {"command": "consume", "group": g, "topic": t, "failures": times that each key fails, "most": max reconsume times,
 *  "level": delay level of a failure, "orderly": true, "broadcast": true, "expression": tags, "instance": name,
 *  "pop": ms that messages are invisible, for one that asks the broker for its queues,
 *  "strategy": see Strategies, "timed": rows have "at" too, the nanoseconds of the system's monotonic clock}
 * {"command": "pop" | "ack" | "batchAck" | "invisible", ...}   see Pops
 * {"command": "rate" | "paced" | "drain", ...}   see Load
 * {"command": "leave", "instance": name}   that consumer shuts down
 * {"command": "queues", "instance": name, "topic": t}   ids of the queues that a consumer has
 * {"command": "poll", "group": g, "topic": t, "queueId": q, "offset": n, "count": n}   by a lite pull consumer
 * {"command": "pull", "group": g, "topic": t, "queueId": q, "offset": n, "count": n}   by a pull consumer
 * {"command": "view", "topic": t, "msgId": offset id} and {"command": "query", "topic": t, "key": k}
 * {"command": "ask", "topic": t, "body": text}   a request, and what a consumer of {"command": "reply", ...} answers
 * {"command": "askLater", "topic": t, "body": text}   the same, by a callback
 * {"command": "recall", "topic": t, "handle": of a send result}   the unique id of a message that is called back
 * {"command": "decide", "group": g, "answer": commit | rollback | unknown}
 * {"command": "check", "most": n}   one round of the transaction check, of every half message
 * {"command": "asked"}   keys that the producers were asked about since the boot
 * {"command": "seen"}   what the consumers have got since the boot
 * {"command": "reset", "group": g, "topic": t, "timestamp": ms, -1 for the end}   by the admin tool
 * {"command": "setOffset", "group": g, "topic": t, "queueId": q, "offset": n}   by the admin tool
 * {"command": "admin", "arguments": [command of mqadmin, option, ...], "seconds": that it has}   see Admin
 * {"command": "admins"}   names of the commands of mqadmin
 * {"command": "addresses"}   of the broker and its name server
 * {"command": "rest"}   consumers and producers of transactions leave, and what was seen and asked is forgotten
 * {"command": "stop"}   a clean shutdown
 * </pre>
 */
public final class Broker {
    /** A client that gives up sends again, or leaves something undone; so none does on a machine that is only slow. */
    private static final int PATIENCE = 60_000;
    private String name = "lab-a";
    private static final Gson GSON = new Gson();
    private final List<Map<String, Object>> seen = new ArrayList<>();
    private final List<String> asked = new ArrayList<>();
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final Map<String, TransactionMQProducer> producers = new LinkedHashMap<>();
    private NamesrvController names;
    private BrokerController broker;
    private DefaultMQProducer producer;
    private DefaultMQAdminExt admin;
    private String address;
    private String namesAddress;
    private String brokerAddress;

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        // as BrokerStartup does; without it the name server takes the broker for one of version 3
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Broker judge = new Broker();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Object answer;
            try {
                answer = judge.answer(GSON.fromJson(line, JsonObject.class));
            } catch (Throwable error) {
                error.printStackTrace();
                answer = Map.of("error", String.valueOf(error));
            }
            out.println(GSON.toJson(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    private Object answer(JsonObject request) throws Exception {
        switch (request.get("command").getAsString()) {
            case "boot":
                return boot(request);
            case "connect":
                address = text(request, "namesrv");
                brokerAddress = text(request, "broker");
                name = "lab-a";
                producer = new DefaultMQProducer("lab-producer");
                start(producer);
                return Map.of();
            case "controller":
                return Map.of("address",
                    Release.controlling(text(request, "store"), request.get("fileSize").getAsInt(), freePort()));
            case "log":
                return Map.of("end", broker.getMessageStore().getMaxPhyOffset(),
                    "role", broker.getMessageStoreConfig().getBrokerRole().name());
            case "choose":
                return Release.choose(request);
            case "filter":
                return Filters.matches(request);
            case "heartbeat": // of the producer, who otherwise says it every 30 seconds
                MQClientManager.getInstance().getOrCreateMQClientInstance(producer).sendHeartbeatToAllBrokerWithLock();
                return Map.of();
            case "sendMany":
                return sendMany(request);
            case "rate":
                return Load.rate(producer, request);
            case "paced":
                return Load.paced(producer, request);
            case "drain":
                return Load.drain(address, request);
            case "leave":
                leave(text(request, "instance"));
                return Map.of();
            case "queues":
                return queues(text(request, "instance"), text(request, "topic"));
            case "poll":
                return Pulls.poll(address, request);
            case "pull":
                return Pulls.pull(address, request);
            case "view":
                return Pulls.row(producer.viewMessage(text(request, "topic"), text(request, "msgId")));
            case "query":
                return Pulls.rows(
                    producer.queryMessage(text(request, "topic"), text(request, "key"), 32, 0, Long.MAX_VALUE)
                        .getMessageList());
            case "reply":
                consumers.add(Pulls.replier(address, text(request, "group"), text(request, "topic"), producer));
                return Map.of();
            case "ask":
                return Pulls.row(producer.request(message(request), PATIENCE));
            case "askLater":
                return Pulls.askLater(producer, message(request), PATIENCE);
            case "recall":
                return Map.of("id", Release.recall(producer, text(request, "topic"), text(request, "handle")));
            case "topic":
                broker.getTopicConfigManager().createTopicInSendMessageMethod(
                    text(request, "topic"), TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC, "127.0.0.1", 4, 0);
                return Map.of();
            case "send":
                return send(request);
            case "sendBatch":
                return sendBatch(request);
            case "sendHalf":
                return sendHalf(request);
            case "request":
                return request(request);
            case "signed":
                return Signed.run(address, brokerAddress, request);
            case "consume":
                return consume(request);
            case "pop":
            case "ack":
            case "batchAck":
            case "invisible":
                return Release.popping(producer, brokerAddress, request);
            case "decide":
                producer(text(request, "group"), state(request, "answer"), state(request, "answer"));
                return Map.of();
            case "check":
                broker.getTransactionalMessageService().check(
                    1, request.get("most").getAsInt(), broker.getTransactionalMessageCheckListener());
                return Map.of();
            case "asked":
                synchronized (asked) {
                    return new ArrayList<>(asked);
                }
            case "seen":
                synchronized (seen) {
                    return new ArrayList<>(seen);
                }
            case "take": // as "seen", and what was told once is not told again
                synchronized (seen) {
                    List<Object> told = new ArrayList<>(seen);
                    seen.clear();
                    return told;
                }
            case "reset":
                admin().resetOffsetByTimestampOld(
                    text(request, "group"), text(request, "topic"), request.get("timestamp").getAsLong(), true);
                return Map.of();
            case "setOffset":
                if (broker != null) {
                    broker.getSubscriptionGroupManager().findSubscriptionGroupConfig(text(request, "group")); // makes it
                }
                admin().updateConsumeOffset(brokerAddress, text(request, "group"),
                    new MessageQueue(text(request, "topic"), name, request.get("queueId").getAsInt()),
                    request.get("offset").getAsLong());
                return Map.of();
            case "admin":
                return Admin.run(address, request);
            case "addresses":
                return Map.of("broker", brokerAddress, "namesrv", address);
            case "admins":
                return Admin.names();
            case "rest":
                return rest();
            case "stop":
                return stop();
            default:
                throw new IllegalArgumentException(request.toString());
        }
    }

    private static String text(JsonObject request, String name) {
        return request.get(name).getAsString();
    }

    /** Waits until something is so. Looks are counted, not time: that may pass without this process. */
    private static void await(String what, Callable<Boolean> so) throws Exception {
        for (int look = 0; !so.call(); look++) {
            if (look > PATIENCE / 20) {
                throw new TimeoutException(what);
            }
            Thread.sleep(20);
        }
    }

    /** A port for a broker, which also listens two below, for its own clients, and one above. */
    private static int freePort() throws IOException {
        while (true) { // below those that the system hands out: between here and the boot none of them would be safe
            int port = ThreadLocalRandom.current().nextInt(12_000, 32_000);
            try (ServerSocket self = new ServerSocket(port); ServerSocket below = new ServerSocket(port - 2);
                    ServerSocket above = new ServerSocket(port + 1)) {
                return port;
            } catch (java.net.BindException taken) {
                continue;
            }
        }
    }

    private Object boot(JsonObject request) throws Exception {
        boolean follows = request.has("follows");
        if (names == null && !follows) { // the name server outlives the brokers
            NettyServerConfig listen = new NettyServerConfig();
            listen.setListenPort(freePort());
            NamesrvConfig namesConfig = new NamesrvConfig();
            namesConfig.setKvConfigPath(Path.of(System.getProperty("user.home"), "kv.json").toString());
            names = new NamesrvController(namesConfig, listen);
            names.initialize();
            names.start();
            namesAddress = "127.0.0.1:" + listen.getListenPort();
        }
        address = follows ? text(request, "follows") : namesAddress;

        String store = text(request, "store");
        MessageStoreConfig storeConfig = new MessageStoreConfig();
        storeConfig.setStorePathRootDir(store);
        storeConfig.setStorePathCommitLog(store + "/commitlog");
        storeConfig.setOsPageCacheBusyTimeOutMills(PATIENCE);
        BrokerConfig brokerConfig = new BrokerConfig();
        Release.defaults(storeConfig, brokerConfig);
        brokerConfig.setBrokerClusterName("LabCluster");
        brokerConfig.setBrokerName("lab-a");
        brokerConfig.setBrokerIP1("127.0.0.1");
        brokerConfig.setBrokerIP2("127.0.0.1"); // where replicas ask for the log
        brokerConfig.setNamesrvAddr(address + (request.has("namesrv") ? ";" + text(request, "namesrv") : ""));
        brokerConfig.setBrokerFastFailureEnable(false); // no request is dropped because it had to wait
        Properties properties = new Properties();
        request.getAsJsonObject("config").entrySet().forEach(e -> properties.setProperty(e.getKey(), e.getValue().getAsString()));
        MixAll.properties2Object(properties, storeConfig);
        MixAll.properties2Object(properties, brokerConfig);
        if (properties.containsKey("rocketmqHome")) { // where a broker of 4.9 looks for accounts
            System.setProperty(MixAll.ROCKETMQ_HOME_PROPERTY, properties.getProperty("rocketmqHome"));
        }
        name = brokerConfig.getBrokerName();
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(freePort());
        storeConfig.setHaListenPort(server.getListenPort() + 1);
        NettyClientConfig client = new NettyClientConfig();
        client.setConnectTimeoutMillis(1000); // in 5.x also how long it takes to find the name server
        broker = Release.controller(brokerConfig, server, client, storeConfig, properties);
        if (!broker.initialize()) {
            inHaste(broker::shutdown);
            throw new IllegalStateException("the broker does not take this store");
        }
        broker.start();
        await("the broker's role", () -> Release.hasRole(broker));
        boolean waits = !request.has("waits") || request.get("waits").getAsBoolean();
        await("the broker's registration", () -> {
            broker.registerBrokerAll(true, false, true); // by itself 5.x does it later
            if (!waits) {
                return true;
            }
            if (follows) {
                return broker.getSlaveSynchronize().getMasterAddr() != null;
            }
            var route = names.getRouteInfoManager().pickupTopicRouteData(name);
            return route != null && !route.getBrokerDatas().isEmpty();
        });
        brokerAddress = broker.getBrokerAddr();
        producer = new DefaultMQProducer("lab-producer");
        start(producer);
        return Map.of("port", server.getListenPort(), "namesrv", address);
    }

    private void start(DefaultMQProducer made) throws MQClientException {
        made.setNamesrvAddr(address);
        made.setSendMsgTimeout(PATIENCE);
        made.setMqClientApiTimeout(PATIENCE);
        made.start();
    }

    private DefaultMQAdminExt admin() throws MQClientException {
        if (admin == null) {
            admin = new DefaultMQAdminExt(PATIENCE);
            admin.setNamesrvAddr(address);
            admin.setInstanceName("admin");
            admin.start();
        }
        return admin;
    }

    private Message message(JsonObject request) {
        String keys = request.has("keys") ? text(request, "keys") : "";
        byte[] body = request.has("base64") ? Base64.getDecoder().decode(text(request, "base64"))
            : (request.has("body") ? text(request, "body") : keys).getBytes(StandardCharsets.UTF_8);
        int flag = request.has("flag") ? request.get("flag").getAsInt() : 0;
        String tag = request.has("tag") ? text(request, "tag") : "tag";
        Message message = new Message(text(request, "topic"), tag, keys, flag, body, true);
        if (request.has("level")) {
            message.setDelayTimeLevel(request.get("level").getAsInt());
        }
        if (request.has("properties")) {
            request.getAsJsonObject("properties").entrySet().forEach(
                e -> MessageAccessor.putProperty(message, e.getKey(), e.getValue().getAsString()));
        }
        return message;
    }

    private static Map<String, Object> told(SendResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getSendStatus().name());
        row.put("msgId", result.getMsgId());
        row.put("offsetMsgId", result.getOffsetMsgId());
        row.put("queueId", result.getMessageQueue().getQueueId());
        row.put("queueOffset", result.getQueueOffset());
        row.put("handle", Release.handle(result));
        return row;
    }

    private Object send(JsonObject request) throws Exception {
        Message message = message(request);
        return told(request.has("queueId")
            ? producer.send(message, new MessageQueue(message.getTopic(), name, request.get("queueId").getAsInt()))
            : producer.send(message));
    }

    private Object sendMany(JsonObject request) throws Exception {
        int count = request.get("count").getAsInt();
        int threads = request.get("threads").getAsInt();
        String how = text(request, "how");
        List<Map<String, Object>> rows = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch left = new CountDownLatch(count);
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        for (int number = 0; number < count; number++) {
            String key = text(request, "prefix") + number;
            pool.execute(() -> {
                try {
                    Message message = new Message(text(request, "topic"), "tag", key, key.getBytes(StandardCharsets.UTF_8));
                    if (how.equals("oneway")) {
                        producer.sendOneway(message);
                        left.countDown();
                    } else if (how.equals("async")) {
                        producer.send(message, new SendCallback() {
                            @Override
                            public void onSuccess(SendResult result) {
                                rows.add(keyed(told(result), key));
                                left.countDown();
                            }

                            @Override
                            public void onException(Throwable error) {
                                rows.add(Map.of("error", String.valueOf(error)));
                                left.countDown();
                            }
                        });
                    } else {
                        rows.add(keyed(told(producer.send(message)), key));
                        left.countDown();
                    }
                } catch (Exception error) {
                    rows.add(Map.of("error", String.valueOf(error)));
                    left.countDown();
                }
            });
        }
        left.await();
        pool.shutdown();
        return rows;
    }

    private static Map<String, Object> keyed(Map<String, Object> row, String key) {
        row.put("keys", key);
        return row;
    }

    private DefaultMQPushConsumer consumer(String instance) {
        return consumers.stream().filter(one -> one.getInstanceName().equals(instance)).findFirst().orElseThrow();
    }

    private void leave(String instance) throws InterruptedException {
        DefaultMQPushConsumer consumer = consumer(instance);
        inHaste(consumer::shutdown);
        consumers.remove(consumer);
    }

    private Object queues(String instance, String topic) {
        return consumer(instance).getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()
            .stream().filter(queue -> queue.getTopic().equals(topic)).map(MessageQueue::getQueueId).sorted()
            .collect(Collectors.toList());
    }

    private Object sendBatch(JsonObject request) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (JsonElement one : request.getAsJsonArray("messages")) {
            messages.add(message(one.getAsJsonObject()));
        }
        return told(producer.send(messages));
    }

    private Object request(JsonObject request) throws Exception {
        RemotingCommand command = RemotingCommand.createRequestCommand(request.get("code").getAsInt(), null);
        HashMap<String, String> fields = new HashMap<>();
        request.getAsJsonObject("fields").entrySet().forEach(e -> fields.put(e.getKey(), e.getValue().getAsString()));
        command.setExtFields(fields);
        if (request.has("base64")) {
            command.setBody(Base64.getDecoder().decode(text(request, "base64")));
        }
        RemotingCommand answer = producer.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl()
            .getRemotingClient().invokeSync(brokerAddress, command, PATIENCE);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("code", answer.getCode());
        row.put("remark", answer.getRemark());
        row.put("fields", answer.getExtFields());
        row.put("body", answer.getBody() == null ? null : new String(answer.getBody(), StandardCharsets.UTF_8));
        row.put("base64", answer.getBody() == null ? null : Base64.getEncoder().encodeToString(answer.getBody()));
        return row;
    }

    private static LocalTransactionState state(JsonObject request, String name) {
        switch (text(request, name)) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    private TransactionMQProducer producer(String group, LocalTransactionState first, LocalTransactionState checked)
            throws Exception {
        TransactionMQProducer made = producers.get(group);
        if (made == null) {
            made = new TransactionMQProducer(group);
            made.setTransactionListener(listener(first, checked));
            start(made);
            // a producer is known to a broker by the heartbeat that follows its first look at a topic of that broker
            var clients = made.getDefaultMQProducerImpl().getmQClientFactory();
            await("the producer's heartbeat", () -> {
                clients.updateTopicRouteInfoFromNameServer(name);
                clients.sendHeartbeatToAllBrokerWithLock();
                return broker == null || broker.getProducerManager().getAvailableChannel(group) != null;
            });
            producers.put(group, made);
        }
        made.setTransactionListener(listener(first, checked));
        return made;
    }

    private TransactionListener listener(LocalTransactionState first, LocalTransactionState checked) {
        return new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return first;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                synchronized (asked) {
                    asked.add(message.getKeys());
                }
                return checked;
            }
        };
    }

    private Object sendHalf(JsonObject request) throws Exception {
        TransactionMQProducer made =
            producer(text(request, "group"), state(request, "answer"), state(request, "checked"));
        return told(made.sendMessageInTransaction(message(request), null));
    }

    private Object consume(JsonObject request) throws Exception {
        String group = text(request, "group");
        String topic = text(request, "topic");
        int failures = request.get("failures").getAsInt();
        int level = request.get("level").getAsInt();
        Map<String, AtomicInteger> tries = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName(request.has("instance") ? text(request, "instance") : group + topic.hashCode());
        consumer.setMqClientApiTimeout(PATIENCE);
        consumer.setConsumeFromWhere(request.has("from") ? ConsumeFromWhere.valueOf(text(request, "from"))
            : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (request.has("time")) {
            consumer.setConsumeTimestamp(text(request, "time"));
        }
        consumer.setMaxReconsumeTimes(request.get("most").getAsInt());
        consumer.setSuspendCurrentQueueTimeMillis(50);
        if (request.has("strategy")) {
            consumer.setAllocateMessageQueueStrategy(Strategies.of(request, name));
        }
        boolean timed = request.has("timed");
        if (request.has("broadcast")) {
            Release.broadcast(consumer);
        }
        if (request.has("pop")) {
            Release.pops(consumer, request.get("pop").getAsLong());
        }
        if (request.has("sql")) {
            consumer.subscribe(topic, MessageSelector.bySql(text(request, "sql")));
        } else {
            consumer.subscribe(topic, request.has("expression") ? text(request, "expression") : "*");
        }
        if (request.has("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                taken(group, messages.get(0), tries, timed) <= failures
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(level);
                return taken(group, messages.get(0), tries, timed) <= failures
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        consumers.add(consumer);
        return Map.of();
    }

    /** Writes down that a consumer has got a message; how often it has got its key by now. */
    private int taken(String group, MessageExt message, Map<String, AtomicInteger> tries, boolean timed) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("group", group);
        row.put("topic", message.getTopic());
        row.put("keys", message.getKeys());
        row.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        row.put("reconsumeTimes", message.getReconsumeTimes());
        row.put("physicalOffset", message.getCommitLogOffset());
        row.put("queueId", message.getQueueId());
        row.put("queueOffset", message.getQueueOffset());
        if (timed) {
            row.put("at", System.nanoTime());
        }
        synchronized (seen) {
            seen.add(row);
        }
        return tries.computeIfAbsent(message.getKeys(), k -> new AtomicInteger()).incrementAndGet();
    }

    private Object stop() throws Exception {
        rest();
        inHaste(producer::shutdown);
        if (broker != null) {
            inHaste(broker::shutdown);
            broker = null;
        }
        return Map.of();
    }

    private Object rest() throws Exception {
        List<Runnable> clients = new ArrayList<>();
        consumers.forEach(consumer -> clients.add(consumer::shutdown));
        producers.values().forEach(made -> clients.add(made::shutdown));
        if (admin != null) {
            clients.add(admin::shutdown);
            admin = null;
        }
        for (Runnable client : clients) {
            inHaste(client);
        }
        consumers.clear();
        producers.clear();
        synchronized (seen) {
            seen.clear();
        }
        synchronized (asked) {
            asked.clear();
        }
        return Map.of();
    }

    /** Ends something of which every connection waits for up to 3 s until its thread for events looks up. */
    private static void inHaste(Runnable shutdown) throws InterruptedException {
        Thread ending = new Thread(shutdown, "ending");
        ending.start();
        while (ending.isAlive()) {
            Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().contains("NettyEventExecutor")).forEach(Thread::interrupt);
            ending.join(100);
        }
    }
}
