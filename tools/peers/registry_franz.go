// Does what each line of its input says, with franz-go's pkg/sr: a line is JSON, and so is the line
// that responds to it.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

type order struct {
	Operation string
	Subject   string
	Version   int
	ID        int
	Hard      bool
	Hex       string
	Index     []int
	Level     sr.CompatibilityLevel
	Mode      sr.Mode
	Schema    sr.Schema
}

const lineBytesMax = 1 << 20

func done(client *sr.Client, asked order) (any, error) {
	ctx := context.Background()
	how := sr.SoftDelete
	if asked.Hard {
		how = sr.HardDelete
	}
	switch asked.Operation {
	case "types":
		return client.SupportedTypes(ctx)
	case "subjects":
		return client.Subjects(ctx)
	case "all":
		return client.AllSchemas(ctx)
	case "register":
		return client.CreateSchema(ctx, asked.Subject, asked.Schema)
	case "register_id":
		return client.CreateSchemaWithIDAndVersion(ctx, asked.Subject, asked.Schema, asked.ID, asked.Version)
	case "found":
		return client.LookupSchema(ctx, asked.Subject, asked.Schema)
	case "by_id":
		return client.SchemaByID(ctx, asked.ID)
	case "text":
		return client.SchemaTextByID(ctx, asked.ID)
	case "by_version":
		return client.SchemaByVersion(ctx, asked.Subject, asked.Version)
	case "versions":
		return client.SubjectVersions(ctx, asked.Subject)
	case "subjects_of":
		return client.SubjectsByID(ctx, asked.ID)
	case "versions_of":
		return client.SchemaVersionsByID(ctx, asked.ID)
	case "references":
		return client.SchemaReferences(ctx, asked.Subject, asked.Version)
	case "usages":
		return client.SchemaUsagesByID(ctx, asked.ID)
	case "delete_version":
		return nil, client.DeleteSchema(ctx, asked.Subject, asked.Version, how)
	case "delete":
		return client.DeleteSubject(ctx, asked.Subject, how)
	case "level":
		found := client.Compatibility(ctx, asked.Subject)[0]
		return found.Level.String(), found.Err
	case "set_level":
		found := client.SetCompatibility(ctx, sr.SetCompatibility{Level: asked.Level}, asked.Subject)[0]
		return found.Level.String(), found.Err
	case "reset_level":
		return nil, client.ResetCompatibility(ctx, asked.Subject)[0].Err
	case "check":
		return client.CheckCompatibility(ctx, asked.Subject, asked.Version, asked.Schema)
	case "set_mode":
		found := client.SetMode(ctx, asked.Mode, asked.Subject)[0]
		return found.Mode.String(), found.Err
	case "reset_mode":
		return nil, client.ResetMode(ctx, asked.Subject)[0].Err
	case "encode":
		payload, err := hex.DecodeString(asked.Hex)
		if err != nil {
			return nil, err
		}
		framed, err := (&sr.ConfluentHeader{}).AppendEncode(nil, asked.ID, asked.Index)
		return hex.EncodeToString(append(framed, payload...)), err
	case "decode":
		framed, err := hex.DecodeString(asked.Hex)
		if err != nil {
			return nil, err
		}
		id, rest, err := (&sr.ConfluentHeader{}).DecodeID(framed)
		if err != nil {
			return nil, err
		}
		index, payload, err := (&sr.ConfluentHeader{}).DecodeIndex(rest, 0)
		return map[string]any{"id": id, "index": index, "hex": hex.EncodeToString(payload)}, err
	}
	return nil, fmt.Errorf("unknown operation %q", asked.Operation)
}

func main() {
	client, err := sr.NewClient(sr.URLs(os.Getenv("REGISTRY_URL")))
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var asked order
		answer := map[string]any{}
		err := json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			answer["result"], err = done(client, asked)
		}
		if err != nil {
			answer["error"] = err.Error()
		}
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
}
