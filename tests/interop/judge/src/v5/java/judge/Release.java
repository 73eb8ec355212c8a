package judge;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What is particular to the store of 5.x. Batch consume queues are left out. */
final class Release {
    static void defaults(MessageStoreConfig config) {
        config.setTimerWheelEnable(false);
        config.setEnableCompaction(false);
    }

    static DefaultMessageStore construct(MessageStoreConfig config, BrokerConfig broker) throws Exception {
        BrokerStatsManager stats = new BrokerStatsManager("judge", false);
        return config.isEnableRocksDBStore()
            ? new RocksDBMessageStore(config, stats, null, broker, new ConcurrentHashMap<>())
            : new DefaultMessageStore(config, stats, null, broker, topics(config));
    }

    /** Only compacted topics have to be known: the store asks for their policy. */
    private static ConcurrentMap<String, TopicConfig> topics(MessageStoreConfig config) throws Exception {
        Path path = Path.of(config.getStorePathRootDir(), "config", "topics.json");
        if (!config.isEnableCompaction() || !Files.exists(path)) {
            return new ConcurrentHashMap<>();
        }
        return RemotingSerializable.fromJson(Files.readString(path), TopicConfigSerializeWrapper.class)
            .getTopicConfigTable();
    }

    static void stopDelivery(DefaultMessageStore store) {
        // the schedule service is the broker's, nothing runs here
    }

    static List<ConsumeQueue> queues(DefaultMessageStore store) {
        List<ConsumeQueue> queues = new ArrayList<>();
        for (Map<Integer, ConsumeQueueInterface> ofTopic : store.getConsumeQueueTable().values()) {
            for (ConsumeQueueInterface queue : ofTopic.values()) {
                if (queue instanceof ConsumeQueue) {
                    queues.add((ConsumeQueue) queue);
                }
            }
        }
        return queues;
    }

    static PutMessageResult put(DefaultMessageStore store, Request.Put put) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        Write.fill(message, put);
        if (put.delayLevel > 0) { // done by a hook of the broker before the store sees the message
            int level = Math.min(put.delayLevel, store.getMaxDelayLevel());
            message.setDelayTimeLevel(level);
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, put.topic);
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, String.valueOf(put.queueId));
            message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
            message.setQueueId(level - 1);
        }
        message.setPropertiesString(put.propertiesString != null
            ? put.propertiesString : MessageDecoder.messageProperties2String(message.getProperties()));
        return store.putMessage(message);
    }

    /** Waits until what was dispatched is in the queues. */
    static void settle(DefaultMessageStore store) throws Exception {
        if (store instanceof RocksDBMessageStore) {
            Rocks.settle(store);
        }
    }

    /** Queues that are no files. */
    static List<Map<String, Object>> otherQueues(DefaultMessageStore store) throws Exception {
        return store instanceof RocksDBMessageStore ? Rocks.queues(store) : new ArrayList<>();
    }

    /** Their entries, with the message of each. */
    static List<Map<String, Object>> otherEntries(DefaultMessageStore store) throws Exception {
        return store instanceof RocksDBMessageStore ? Rocks.entries(store) : new ArrayList<>();
    }

    /** Commands that only one release has. */
    static void run(Request request, Map<String, Object> answer) throws Exception {
        switch (request.command) {
            case "compacted":
                Compacted.run(request, answer);
                break;
            case "timers":
                Timers.run(request, answer);
                break;
            default:
                throw new IllegalArgumentException("no such command: " + request.command);
        }
    }

    private Release() {
    }
}
