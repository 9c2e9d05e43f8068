// Confluent's serializer, deserializer and canonical text for Protobuf in Java. Arguments: the
// registry, a value that Python has written, and files of schemas. Prints the values written here,
// the value read, and the canonical text of each file.

import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Message;
import io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchemaProvider;
import io.confluent.kafka.serializers.protobuf.KafkaProtobufDeserializer;
import io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

public class ProtobufStory {
  static final String ORDER = "syntax = \"proto3\"; package p;"
      + "message First { int32 x = 1; }"
      + "message Order { int64 id = 1; map<string, int32> counts = 2; Home home = 3;"
      + "message Other { int32 y = 1; } message Home { string city = 1; repeated double at = 2; } }";

  public static void main(String[] arguments) {
    try {
      exchange(arguments);
    } catch (Exception failed) {
      // Java's launcher cannot shorten the trace of an exception of another class loader.
      failed.printStackTrace();
      System.exit(1);
    }
  }

  static void exchange(String[] arguments) throws Exception {
    Map<String, Object> settings = Map.of("schema.registry.url", arguments[0]);
    var client = new CachedSchemaRegistryClient(
        List.of(arguments[0]), 100, List.of(new ProtobufSchemaProvider()), Map.of());
    ProtobufSchema schema = new ProtobufSchema(ORDER);
    Descriptor homes = schema.toDescriptor("p.Order.Home");
    Message home = DynamicMessage.newBuilder(homes)
        .setField(homes.findFieldByName("city"), "Wien")
        .addRepeatedField(homes.findFieldByName("at"), 1.5)
        .build();
    Descriptor orders = schema.toDescriptor("p.Order");
    Message order = DynamicMessage.newBuilder(orders)
        .setField(orders.findFieldByName("id"), 7L)
        .setField(orders.findFieldByName("home"), DynamicMessage.parseFrom(
            orders.findFieldByName("home").getMessageType(), home.toByteArray()))
        .build();
    var serializer = new KafkaProtobufSerializer<Message>(client, settings);
    print("written", serializer.serialize("java-protobuf", order));
    print("nested", serializer.serialize("java-nested", home));
    var deserializer = new KafkaProtobufDeserializer<Message>(client, settings);
    Message read = deserializer.deserialize("python-protobuf", HexFormat.of().parseHex(arguments[1]));
    print("read", read.toByteArray());
    for (int place = 2; place < arguments.length; place++) {
      String text = Files.readString(Path.of(arguments[place]));
      print(arguments[place], canonical(text).getBytes("UTF-8"));
    }
    serializer.close();
    deserializer.close();
  }

  // Empty for a text that this version cannot parse, such as that of a newer edition.
  static String canonical(String text) {
    try {
      return new ProtobufSchema(text).canonicalString();
    } catch (IllegalArgumentException refused) {
      return "";
    }
  }

  static void print(String name, byte[] bytes) {
    System.out.println(name + " " + HexFormat.of().formatHex(bytes));
  }
}
