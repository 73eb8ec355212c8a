package judge;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** One store directory held by the engine. */
final class Session {
    /** Closing waits for the pause between two flushes to end; half a second is usual. */
    private static final int FLUSH_MILLIS = 50;

    final DefaultMessageStore store;
    private final Request request;
    private boolean started;

    Session(Request request) throws Exception {
        this.request = request;
        MessageStoreConfig config = new MessageStoreConfig();
        BrokerConfig broker = new BrokerConfig();
        config.setStorePathRootDir(request.store);
        config.setStorePathCommitLog(request.store + "/commitlog");
        config.setHaListenPort(0); // any free port
        config.setDiskMaxUsedSpaceRatio(95);
        config.setFileReservedTime(1_000_000); // hours: nothing expires under the judge
        config.setFlushIntervalCommitLog(FLUSH_MILLIS);
        Release.defaults(config);
        for (Map.Entry<String, String> setting : request.config.entrySet()) {
            if (!set(config, setting.getKey(), setting.getValue()) && !set(broker, setting.getKey(), setting.getValue())) {
                throw new IllegalArgumentException("no such setting: " + setting.getKey());
            }
        }
        store = Release.construct(config, broker);
    }

    /** Starts the store and waits until it has dispatched what its queues lacked. */
    void start() throws Exception {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Thread starter = new Thread(() -> {
            try {
                store.start();
            } catch (Throwable e) {
                failure.set(e);
            }
        }, "starter");
        starter.setDaemon(true);
        starter.start();
        starter.join(request.startTimeoutMillis);
        if (starter.isAlive()) {
            throw new TimeoutException("start() hangs, dispatch is behind by " + store.dispatchBehindBytes() + " bytes");
        }
        if (failure.get() != null) {
            throw new IllegalStateException("start() failed: " + failure.get(), failure.get());
        }
        started = true;
        if (!request.deliver) {
            Release.stopDelivery(store);
        }
        awaitDispatch(request.startTimeoutMillis);
    }

    void awaitDispatch(long timeoutMillis) throws Exception {
        long end = System.currentTimeMillis() + timeoutMillis;
        while (store.dispatchBehindBytes() > 0 && System.currentTimeMillis() < end) {
            Thread.sleep(1);
        }
        Release.settle(store);
    }

    void stop() throws Exception {
        Thread.sleep(request.lingerMillis);
        if (started) {
            store.getRunningFlags().getAndMakeDiskOK(); // a nearly full disk would keep the abort file
            Thread.currentThread().interrupt(); // skips the pause with which shutdown() begins
        }
        store.shutdown();
        Thread.interrupted();
    }

    private static boolean set(Object bean, String name, String value) throws Exception {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : bean.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                Class<?> type = method.getParameterTypes()[0];
                if (type.isPrimitive() || type == String.class) { // not the overloads that take an enum
                    try {
                        method.invoke(bean, convert(type, value));
                    } catch (InvocationTargetException e) {
                        throw new IllegalArgumentException("setting " + name + " refuses " + value, e.getCause());
                    }
                    return true;
                }
            }
        }
        try { // some have no setter, like timerStopDequeue
            Field field = bean.getClass().getDeclaredField(name);
            field.setAccessible(true);
            field.set(bean, convert(field.getType(), value));
            return true;
        } catch (NoSuchFieldException e) {
            return false;
        }
    }

    private static Object convert(Class<?> type, String value) {
        if (type == boolean.class) {
            return Boolean.valueOf(value);
        }
        if (type == int.class) {
            return Integer.valueOf(value);
        }
        if (type == long.class) {
            return Long.valueOf(value);
        }
        if (type == double.class) {
            return Double.valueOf(value);
        }
        return value;
    }
}
