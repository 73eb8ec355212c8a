import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.broker.filter.*;
import org.apache.rocketmq.broker.loadbalance.MessageRequestModeManager;
import org.apache.rocketmq.broker.offset.*;
import org.apache.rocketmq.broker.schedule.DelayOffsetSerializeWrapper;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.broker.transaction.TransactionMetrics;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.filter.util.BloomFilterData;
import org.apache.rocketmq.remoting.protocol.*;
import org.apache.rocketmq.remoting.protocol.body.*;
import org.apache.rocketmq.remoting.protocol.statictopic.*;
import org.apache.rocketmq.remoting.protocol.subscription.*;
import org.apache.rocketmq.store.timer.TimerMetrics;

/**
 * Writes the files of ../5.3-managers and ../fastjson-1.2.83, as rocketmq-broker 5.3.3 encodes them.
 *
 * java -cp 'rocketmq-broker-5.3.3.jar and what it depends on' EncodeManagers.java FOLDER
 */
public class EncodeManagers {
    static Path dir;

    static void put(String name, String json) throws Exception {
        Path file = dir.resolve(name);
        Files.createDirectories(file.getParent());
        Files.write(file, json.getBytes(StandardCharsets.UTF_8));
    }

    static DataVersion version() {
        DataVersion v = new DataVersion();
        v.setCounter(new AtomicLong(3));
        v.setStateVersion(2);
        v.setTimestamp(1700000000123L);
        return v;
    }

    static ConcurrentMap<Integer, Long> queues(long... offsets) {
        ConcurrentMap<Integer, Long> map = new ConcurrentHashMap<>();
        for (int i = 0; i < offsets.length; i++) map.put(i, offsets[i]);
        return map;
    }

    public static void main(String[] args) throws Exception {
        dir = Paths.get(args[0]);

        ConsumerOffsetManager offsets = new ConsumerOffsetManager();
        offsets.setDataVersion(version());
        offsets.getOffsetTable().put("TopicA@GroupA", queues(12, 5));
        offsets.getOffsetTable().put("%RETRY%GroupA@GroupA", queues(7));
        offsets.getOffsetTable().put("Empty@GroupB", queues());
        offsets.getOffsetTable().put("订单@组-1", queues(Long.MAX_VALUE, 0, -1));
        put("5.3-managers/consumerOffset.json", offsets.encode(true));

        Constructor<LmqConsumerOffsetManager> hidden = LmqConsumerOffsetManager.class.getDeclaredConstructor();
        hidden.setAccessible(true);
        LmqConsumerOffsetManager lmq = hidden.newInstance();
        lmq.setDataVersion(version());
        lmq.getOffsetTable().put("TopicA@GroupA", queues(12, 5));
        lmq.getLmqOffsetTable().put("%LMQ%a@%LMQ%g", 33L);
        lmq.getLmqOffsetTable().put("%LMQ%b@%LMQ%g", 0L);
        put("5.3-managers/lmqConsumerOffset.json", lmq.encode(true));

        TopicConfigSerializeWrapper topics = new TopicConfigSerializeWrapper();
        topics.setDataVersion(version());
        TopicConfig order = new TopicConfig("OrderEvents", 8, 8, 6);
        order.getAttributes().put("message.type", "FIFO");
        topics.getTopicConfigTable().put("OrderEvents", order);
        topics.getTopicConfigTable().put("%RETRY%lab-a_1", new TopicConfig("%RETRY%lab-a_1", 1, 1, 6));
        put("5.3-managers/topics.json", topics.toJson(true));

        TopicConfig copy = new TopicConfig(order);
        copy.setTopicName("%RETRY%copy-of_order");
        copy.setAttributes(order.getAttributes());
        TopicConfig third = new TopicConfig(order);
        third.setTopicName("Third");
        third.setAttributes(order.getAttributes());
        topics.getTopicConfigTable().put(copy.getTopicName(), copy);
        topics.getTopicConfigTable().put(third.getTopicName(), third);
        put("fastjson-1.2.83/references.json", topics.toJson(true));

        SubscriptionGroupManager groups = new SubscriptionGroupManager();
        groups.getSubscriptionGroupTable().clear();
        groups.getDataVersion().assignNewOne(version());
        SubscriptionGroupConfig billing = new SubscriptionGroupConfig();
        billing.setGroupName("billing");
        groups.getSubscriptionGroupTable().put("billing", billing);
        SubscriptionGroupConfig full = new SubscriptionGroupConfig();
        full.setGroupName("full");
        full.setConsumeMessageOrderly(true);
        full.getAttributes().put("priority", "1");
        GroupRetryPolicy retry = new GroupRetryPolicy();
        retry.setType(GroupRetryPolicyType.EXPONENTIAL);
        retry.setExponentialRetryPolicy(new ExponentialRetryPolicy(5000L, 7200000L, 2L));
        retry.setCustomizedRetryPolicy(new CustomizedRetryPolicy(new long[] {1000, 5000}));
        full.setGroupRetryPolicy(retry);
        Set<SimpleSubscriptionData> subscriptions = new LinkedHashSet<>();
        subscriptions.add(new SimpleSubscriptionData("TopicA", "TAG", "a || b", 1700000000000L));
        subscriptions.add(new SimpleSubscriptionData("TopicB", "SQL92", "x > 1", 1700000000001L));
        full.setSubscriptionDataSet(subscriptions);
        groups.getSubscriptionGroupTable().put("full", full);
        ConcurrentMap<String, Integer> forbidden = new ConcurrentHashMap<>();
        forbidden.put("OrderEvents", 4);
        groups.getForbiddenTable().put("billing", forbidden);
        put("5.3-managers/subscriptionGroup.json", groups.encode(true));

        DelayOffsetSerializeWrapper delay = new DelayOffsetSerializeWrapper();
        delay.setDataVersion(version());
        ConcurrentMap<Integer, Long> levels = new ConcurrentHashMap<>();
        levels.put(1, 120L);
        levels.put(3, 7L);
        delay.setOffsetTable(levels);
        put("5.3-managers/delayOffset.json", delay.toJson(true));

        ConsumerFilterManager filters = new ConsumerFilterManager();
        ConsumerFilterData filter = new ConsumerFilterData();
        filter.setTopic("OrderEvents");
        filter.setConsumerGroup("billing");
        filter.setExpression("amount > 100");
        filter.setExpressionType("SQL92");
        filter.setBornTime(1700000000000L);
        filter.setClientVersion(1700000000500L);
        filter.setBloomFilterData(new BloomFilterData(new int[] {3, 77, 101}, 112));
        ConsumerFilterManager.FilterDataMapByTopic byTopic = new ConsumerFilterManager.FilterDataMapByTopic("OrderEvents");
        byTopic.getGroupFilterData().put("billing", filter);
        ConsumerFilterData dead = new ConsumerFilterData();
        dead.setTopic("OrderEvents");
        dead.setConsumerGroup("gone");
        dead.setExpression("a is not null");
        dead.setExpressionType("SQL92");
        dead.setBornTime(1700000000000L);
        dead.setDeadTime(4102444800000L);
        byTopic.getGroupFilterData().put("gone", dead);
        filters.getFilterDataByTopic().put("OrderEvents", byTopic);
        put("5.3-managers/consumerFilter.json", filters.encode(true));

        ConsumerOrderInfoManager orders = new ConsumerOrderInfoManager();
        ConsumerOrderInfoManager.OrderInfo info = new ConsumerOrderInfoManager.OrderInfo();
        info.setAttemptId("att-1");
        info.setInvisibleTime(30000L);
        info.setLastConsumeTimestamp(1700000000000L);
        info.setPopTime(1700000000000L);
        info.setOffsetList(new ArrayList<>(Arrays.asList(100L, 1L, 5L)));
        info.setOffsetConsumedCount(new HashMap<>(Map.of(101L, 1)));
        info.setOffsetNextVisibleTime(new HashMap<>(Map.of(105L, 1700000030000L)));
        ConcurrentHashMap<Integer, ConsumerOrderInfoManager.OrderInfo> byQueue = new ConcurrentHashMap<>();
        byQueue.put(2, info);
        ConsumerOrderInfoManager.OrderInfo bare = new ConsumerOrderInfoManager.OrderInfo();
        bare.setOffsetList(new ArrayList<>(Arrays.asList(7L)));
        byQueue.put(3, bare);
        orders.getTable().put("OrderEvents@billing", byQueue);
        put("5.3-managers/consumerOrderInfo.json", JSON.toJSONString(orders, true));

        TopicQueueMappingSerializeWrapper mapping = new TopicQueueMappingSerializeWrapper();
        TopicQueueMappingDetail detail = new TopicQueueMappingDetail("OrderEvents", 4, "broker-a", 1700000000123L);
        detail.getCurrIdMap().put(0, 0);
        detail.getHostedQueues().put(0, new ArrayList<>(Arrays.asList(new LogicQueueMappingItem(0, 0, "broker-a", 0, 0, -1, -1, -1))));
        detail.getHostedQueues().put(1, new ArrayList<>(Arrays.asList(
            new LogicQueueMappingItem(0, 1, "broker-b", 0, 0, 50, 1, 2), new LogicQueueMappingItem(1, 1, "broker-a", 50, 0, -1, -1, -1))));
        mapping.setTopicQueueMappingInfoMap(new ConcurrentHashMap<>(Map.of("OrderEvents", detail)));
        mapping.setDataVersion(version());
        put("5.3-managers/topicQueueMapping.json", JSON.toJSONString(mapping, true));

        MessageRequestModeManager modes = new MessageRequestModeManager(null);
        SetMessageRequestModeRequestBody mode = new SetMessageRequestModeRequestBody();
        mode.setTopic("OrderEvents");
        mode.setConsumerGroup("billing");
        mode.setMode(MessageRequestMode.POP);
        mode.setPopShareQueueNum(2);
        modes.setMessageRequestMode("OrderEvents", "billing", mode);
        put("5.3-managers/messageRequestMode.json", modes.encode(true));

        TimerMetrics.TimerMetricsSerializeWrapper timer = new TimerMetrics.TimerMetricsSerializeWrapper();
        timer.setDataVersion(version());
        timer.getTimingCount().put("OrderEvents", metric(5));
        timer.getTimingCount().put("订单/a", metric(9007199254740992L));
        put("5.3-managers/timermetrics", JSON.toJSONString(timer, SerializerFeature.BrowserCompatible));

        TransactionMetrics.TransactionMetricsSerializeWrapper half = new TransactionMetrics.TransactionMetricsSerializeWrapper();
        half.setDataVersion(version());
        half.getTransactionCount().put("OrderEvents", half());
        put("5.3-managers/transactionMetrics", JSON.toJSONString(half, SerializerFeature.BrowserCompatible));

        Map<Object, Object> all = new LinkedHashMap<>();
        StringBuilder units = new StringBuilder();
        for (char unit = 0; unit <= 0xA1; unit++) units.append(unit);
        all.put("text", units + "\u2027\u2028\u2029\u202A\uFEFF\uFFFF é 订单 \uD83D\uDE00 </b>");
        all.put("%a\"b\\c", "");
        all.put("numbers", Arrays.asList(0, -1, Long.MIN_VALUE, Long.MAX_VALUE, 1.0, -0.0, 1.5E-7, 1e7, 123456.789, null, true, false));
        all.put("bare", of(0, "a", -7, 1.0, 2, true));
        all.put("nested", of(2, of("b", of(3, of(4, 5))), 3, of(), 4, Arrays.asList(), 5, Arrays.asList(of(1, 2), of("x", of()))));
        all.put("mixed", of("a", 1, 2, 3, "b", 4, 5, 6));
        all.put("arrays", Arrays.asList(new int[] {3, 77}, new int[] {}, new String[] {"a", "b"}, Arrays.asList(1L, 2L)));
        all.put("set", new LinkedHashSet<>(Arrays.asList(of("a", 1), "x", null, of(1, of("b", 2)), Arrays.asList(1, 2))));
        Map<Object, Object> shared = of("k", of("deep", 1));
        all.put("first-of_two", of(1, Arrays.asList(0, shared), "it", of("订.\"'\\@", shared.get("k"))));
        all.put("again", Arrays.asList(shared, of("in", shared.get("k"))));
        Map<Object, Object> ring = of("n", 1);
        ring.put("self", ring);
        ring.put("child", of("parent", ring, "list", Arrays.asList(ring, all)));
        all.put("ring", ring);
        put("fastjson-1.2.83/dialect.json", JSON.toJSONString(all, true));
        put("fastjson-1.2.83/dialect-compact.json", JSON.toJSONString(all, SerializerFeature.BrowserCompatible));
    }

    static Map<Object, Object> of(Object... entries) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < entries.length; i += 2) map.put(entries[i], entries[i + 1]);
        return map;
    }

    static TimerMetrics.Metric metric(long count) {
        TimerMetrics.Metric metric = new TimerMetrics.Metric();
        metric.getCount().set(count);
        metric.setTimeStamp(1700000000000L);
        return metric;
    }

    static TransactionMetrics.Metric half() {
        TransactionMetrics.Metric metric = new TransactionMetrics.Metric();
        metric.getCount().set(7);
        metric.setTimeStamp(1700000000000L);
        return metric;
    }
}
