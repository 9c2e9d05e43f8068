"""Parts of Produce and Fetch: sessions, responses, conversion of old formats, recompression."""
