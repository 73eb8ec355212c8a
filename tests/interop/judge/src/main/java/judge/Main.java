/*
 * The judge lets the real Apache RocketMQ store engine open, write and fill store directories, so that rmqtool's own
 * reading and repairing of the same directories can be compared with it.
 *
 * One JSON request per line on stdin, one JSON answer per line on stdout; it ends when stdin does. Whatever the engine
 * prints goes to stderr. An exception is an answer too: {"error": ...}, beside what was found out before it.
 */
package judge;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

public final class Main {
    private static final int KILLED = 137;

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Gson gson = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            Request request = gson.fromJson(line, Request.class);
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                run(request, answer);
            } catch (Throwable e) { // an OutOfMemoryError from a damaged length is an answer as well
                e.printStackTrace();
                answer.put("error", e.toString());
            }
            answers.print(gson.toJson(answer));
            answers.print('\n');
            answers.flush();
            if (request.kill) {
                Runtime.getRuntime().halt(KILLED); // as kill -9 does: nothing is flushed, the abort file stays
            }
        }
        Runtime.getRuntime().halt(0); // the engine leaves threads behind
    }

    private static void run(Request request, Map<String, Object> answer) throws Exception {
        switch (request.command) {
            case "open":
                Open.run(request, answer);
                break;
            case "write":
                Write.run(request, answer);
                break;
            case "step":
                Steps.run(request, answer);
                break;
            case "bench":
                Bench.run(request, answer);
                break;
            case "dledger":
                Ledger.run(request, answer);
                break;
            default:
                Release.run(request, answer);
        }
    }

    private Main() {
    }
}
