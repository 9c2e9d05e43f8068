import java.util.Map;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** A policy that permits every topic. */
public class Policy implements CreateTopicPolicy {
    @Override
    public void configure(Map<String, ?> configs) {}

    @Override
    public void validate(RequestMetadata request) {}

    @Override
    public void close() {}
}
