package judge;

import com.google.gson.Gson;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.test.base.Served;
import org.junit.AssumptionViolatedException;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Run test classes one after another; a line of JSON on stdout says how each of their tests has ended. */
public final class Run {
    private Run() {
    }

    public static void main(String[] classes) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        JUnitCore core = new JUnitCore();
        core.addListener(new Lines(out));
        for (String name : classes) {
            core.run(Class.forName(name));
        }
        Runtime.getRuntime().halt(0);
    }

    private static final class Lines extends RunListener {
        private static final Gson GSON = new Gson();
        private final PrintStream out;
        private Failure failure;
        private long started;

        Lines(PrintStream out) {
            this.out = out;
        }

        @Override
        public void testStarted(Description test) {
            failure = null;
            started = System.currentTimeMillis();
        }

        @Override
        public void testFailure(Failure failed) {
            failure = failed;
            if (failed.getDescription().getMethodName() == null) { // before or after the class
                started = System.currentTimeMillis();
                say(failed.getDescription());
            }
        }

        @Override
        public void testAssumptionFailure(Failure failed) {
            failure = failed;
        }

        @Override
        public void testFinished(Description test) {
            say(test);
        }

        @Override
        public void testIgnored(Description test) {
            line(test, "ignored", "", 0);
        }

        private void say(Description test) {
            Throwable error = failure == null ? null : failure.getException();
            String how = error == null ? "passed" : error instanceof AssumptionViolatedException ? "ignored"
                : inside(error) ? "inside" : "failed";
            StringWriter trace = new StringWriter();
            if (error != null) {
                error.printStackTrace(new PrintWriter(trace));
            }
            line(test, how, trace.toString(), System.currentTimeMillis() - started);
        }

        private static boolean inside(Throwable error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (cause instanceof Served.Inside) {
                    return true;
                }
            }
            return false;
        }

        private void line(Description test, String how, String trace, long milliseconds) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("class", test.getTestClass().getSimpleName());
            row.put("test", test.getMethodName());
            row.put("how", how);
            row.put("milliseconds", milliseconds);
            row.put("trace", trace);
            out.println(GSON.toJson(row));
        }
    }
}
