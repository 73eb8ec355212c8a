package judge;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.timer.Slot;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerLog;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerMetrics;

/** The timer of a store, as a broker makes it: loaded after the store, started after it, stopped before it. */
final class Timers {
    private static final int LONGEST_CHAIN = 2_000;
    private static final int LOOK_MILLIS = 20;
    private static final int LOOKS = 5;

    static void run(Request request, Map<String, Object> answer) throws Exception {
        Session session = new Session(request);
        DefaultMessageStore store = session.store;
        boolean loaded = store.load();
        answer.put("loadOk", loaded);
        if (!loaded) {
            session.stop();
            return;
        }
        MessageStoreConfig config = store.getMessageStoreConfig();
        TimerMessageStore timer;
        try {
            timer = new TimerMessageStore(store, config, new TimerCheckpoint(request.store + "/config/timercheck"),
                new TimerMetrics(request.store + "/config/timermetrics"), store.getBrokerStatsManager());
        } catch (RuntimeException e) { // a wheel of another length
            answer.put("timerOk", false);
            answer.put("why", String.valueOf(e.getMessage()));
            session.stop();
            return;
        }
        boolean timerLoaded = timer.load();
        answer.put("timerOk", timerLoaded);
        answer.put("timer", state(timer, request));
        if (timerLoaded && request.start) {
            session.start();
            timer.start(true);
            Write.puts(session, request, answer);
            answer.put("quiet", await(timer, request));
        }
        if (!request.kill) {
            timer.shutdown();
            session.stop();
        }
    }

    /** What recovery has left in memory. */
    private static Map<String, Object> state(TimerMessageStore timer, Request request) {
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("end", timer.getTimerLog().getMappedFileQueue().getFlushedWhere());
        state.put("queueOffset", timer.getQueueOffset());
        state.put("readTime", timer.getCurrReadTimeMs());
        List<Object> slots = new ArrayList<>();
        long precision = timer.getPrecisionMs();
        for (int index = 0; index < 2 * 7 * 86_400; index++) {
            Slot slot = timer.getTimerWheel().getRawSlot(index * precision);
            if (slot.timeMs > 0 && slot.timeMs >= timer.getCurrReadTimeMs()) {
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("number", index);
                row.put("time", slot.timeMs / precision);
                row.put("first", slot.firstPos);
                row.put("last", slot.lastPos);
                row.put("count", slot.num);
                row.put("units", chain(timer, slot.lastPos));
                slots.add(row);
            }
        }
        state.put("slots", slots);
        return state;
    }

    /** Physical offset, size and magic of each unit that a slot leads to, read as a dequeue reads them. */
    private static List<Object> chain(TimerMessageStore timer, long position) {
        List<Object> units = new ArrayList<>();
        long at = position;
        while (at != -1 && units.size() < LONGEST_CHAIN) {
            SelectMappedBufferResult found = timer.getTimerLog().getTimerMessage(at);
            if (found == null || found.getSize() < TimerLog.UNIT_SIZE) {
                units.add(null);
                break;
            }
            ByteBuffer unit = found.getByteBuffer();
            unit.getInt();
            long before = unit.getLong();
            int magic = unit.getInt();
            unit.getLong();
            unit.getInt();
            units.add(List.of(unit.getLong(), unit.getInt(), magic));
            found.release();
            at = before;
        }
        return units;
    }

    /** Waits until everything is taken up, and delivered up to a time; false when that does not come. */
    private static boolean await(TimerMessageStore timer, Request request) throws Exception {
        long end = System.currentTimeMillis() + request.startTimeoutMillis;
        int quiet = 0;
        while (quiet < LOOKS) {
            if (System.currentTimeMillis() > end) {
                return false;
            }
            Thread.sleep(LOOK_MILLIS);
            ConsumeQueueInterface queue =
                timer.getMessageStore().getConsumeQueue(TimerMessageStore.TIMER_TOPIC, 0);
            long max = queue == null ? 0 : queue.getMaxOffsetInQueue();
            boolean still = timer.getCommitQueueOffset() >= max && timer.getCommitReadTimeMs() > request.deliverUntil;
            quiet = still ? quiet + 1 : 0;
        }
        return true;
    }

    private Timers() {
    }
}
