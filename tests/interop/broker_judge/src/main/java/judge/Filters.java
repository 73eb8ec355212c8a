package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/** What the broker's SQL92 filter says of properties; "refused" of an expression that it does not take. */
final class Filters {
    private Filters() {
    }

    static Object matches(JsonObject request) {
        List<Object> answers = new ArrayList<>();
        for (JsonElement one : request.getAsJsonArray("expressions")) {
            Expression expression;
            try {
                expression = FilterFactory.INSTANCE.get("SQL92").compile(one.getAsString());
            } catch (Throwable refused) {
                answers.add("refused");
                continue;
            }
            List<Boolean> matches = new ArrayList<>();
            for (JsonElement row : request.getAsJsonArray("properties")) {
                Map<String, String> properties = new HashMap<>();
                row.getAsJsonObject().entrySet().forEach(e -> properties.put(e.getKey(), e.getValue().getAsString()));
                Object found;
                try {
                    found = expression.evaluate(new MessageEvaluationContext(properties));
                } catch (Throwable thrown) { // as ExpressionMessageFilter does
                    found = null;
                }
                matches.add(Boolean.TRUE.equals(found));
            }
            answers.add(matches);
        }
        return answers;
    }
}
