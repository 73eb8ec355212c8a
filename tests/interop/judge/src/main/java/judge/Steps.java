package judge;

import java.util.Map;

/** A broker's start step by step, a request each: constructed, loaded, started, ended. */
final class Steps {
    private static Session session;

    static void run(Request request, Map<String, Object> answer) throws Exception {
        switch (request.step) {
            case "construct":
                session = new Session(request);
                break;
            case "load":
                boolean loaded = session.store.load();
                answer.put("loadOk", loaded);
                if (loaded) {
                    Release.settle(session.store);
                }
                answer.put("afterLoad", Open.state(session.store));
                break;
            case "start":
                try {
                    session.start();
                    answer.put("started", true);
                } catch (IllegalStateException e) {
                    answer.put("started", false);
                    answer.put("why", e.getMessage());
                }
                break;
            case "put":
                Write.puts(session, request, answer);
                break;
            case "end":
                session.stop();
                session = null;
                break;
            default:
                throw new IllegalArgumentException("no such step: " + request.step);
        }
    }

    private Steps() {
    }
}
