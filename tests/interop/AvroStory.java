// Confluent's serializer and deserializer for Avro in Java. Arguments: the registry, a value that
// Python has written. Prints the value written here, and the value read.

import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;

public class AvroStory {
  static final String ORDER = "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"p\",\"fields\":["
      + "{\"name\":\"id\",\"type\":\"long\"},"
      + "{\"name\":\"tags\",\"type\":{\"type\":\"array\",\"items\":\"string\"}},"
      + "{\"name\":\"home\",\"type\":{\"type\":\"record\",\"name\":\"City\",\"fields\":"
      + "[{\"name\":\"name\",\"type\":\"string\"}]}},"
      + "{\"name\":\"note\",\"type\":[\"null\",\"string\"],\"default\":null}]}";

  public static void main(String[] arguments) {
    Map<String, Object> settings = Map.of("schema.registry.url", arguments[0]);
    Schema schema = new Schema.Parser().parse(ORDER);
    GenericData.Record city = new GenericData.Record(schema.getField("home").schema());
    city.put("name", "Wien");
    GenericData.Record order = new GenericData.Record(schema);
    order.put("id", 7L);
    order.put("tags", List.of("a", "b"));
    order.put("home", city);
    order.put("note", "soon");
    try (KafkaAvroSerializer serializer = new KafkaAvroSerializer();
        KafkaAvroDeserializer deserializer = new KafkaAvroDeserializer()) {
      serializer.configure(settings, false);
      deserializer.configure(settings, false);
      byte[] written = serializer.serialize("java-avro", order);
      System.out.println("written " + HexFormat.of().formatHex(written));
      byte[] given = HexFormat.of().parseHex(arguments[1]);
      System.out.println("read " + deserializer.deserialize("python-avro", given));
    }
  }
}
