package judge;

import java.util.List;
import java.util.Map;

/** A request line; which fields count depends on the command. */
final class Request {
    String command;
    String store;
    /** Settings of MessageStoreConfig or BrokerConfig by name; see {@link Session} for what is set without being asked. */
    Map<String, String> config = Map.of();
    /** How long start() and the dispatch after it may take before that counts as "it hangs". */
    long startTimeoutMillis = 20_000;
    /** Let 4.x deliver delayed messages that are due; otherwise its schedule service is stopped as soon as it starts. */
    boolean deliver;
    /** How long to stay open before closing. */
    long lingerMillis;

    // open
    boolean start = true;
    boolean messages = true;
    List<Key> keys = List.of();
    List<Time> times = List.of();
    List<Get> gets = List.of();

    // write: the messages to put, in order; kill ends the process without closing the store
    List<Put> puts = List.of();
    boolean kill;

    // step: construct, load, start, put or end, one after the other; a store each time
    String step;

    // timers (5.x): start, puts and kill as above, and the time up to which all is to be delivered, 0 for nothing
    long deliverUntil;

    // bench
    long count = 100_000;
    int bodySize = 1024;
    int topics = 4;
    int queues = 4;
    /** Messages of a batch; 0 puts them one by one. */
    int batch;

    static final class Key {
        String topic;
        String key;
    }

    static final class Time {
        String topic;
        int queueId;
        long timestamp;
    }

    static final class Get {
        String topic;
        int queueId;
        long offset;
        int maxMsgNums = 32;
    }

    static final class Put {
        String topic;
        int queueId;
        /** Base64; none is a message without a body. */
        String body;
        String tags;
        String keys;
        Map<String, String> properties = Map.of();
        /** Stored as it is instead of what the properties above would give. */
        String propertiesString;
        int sysFlag;
        int flag;
        Long bornTimestamp;
        String bornHost = "127.0.0.1:40000";
        String storeHost = "127.0.0.1:10911";
        int reconsumeTimes;
        long preparedTransactionOffset;
        int delayLevel;
        /** Messages of one batch: body, tags, keys, properties and flag count there, everything else is the batch's. */
        List<Put> batch;
        /** Wait so long before this message. */
        long pauseMillis;
    }
}
