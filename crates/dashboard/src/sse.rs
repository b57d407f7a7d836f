//! Parser for the server-sent events of the gateway, which have one line of data each.

/// Longer messages are skipped.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SseMessage {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

/// Splits a stream into messages. A comment becomes a message without name and data: a heartbeat.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    buffer: Vec<u8>,
    /// The current message is too long and is skipped up to its end.
    is_skipping: bool,
}

impl SseParser {
    /// Adds bytes and returns the messages that are now complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<SseMessage> {
        self.buffer.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
            let message: Vec<u8> = self.buffer.drain(..end + 2).collect();
            if !std::mem::take(&mut self.is_skipping) {
                messages.push(parse_message(&String::from_utf8_lossy(&message)));
            }
        }
        if self.buffer.len() > MESSAGE_BYTES_MAX {
            // The last byte may be the first half of the separator.
            let last = self.buffer.pop();
            self.buffer.clear();
            self.buffer.extend(last);
            self.is_skipping = true;
        }
        messages
    }
}

fn parse_message(text: &str) -> SseMessage {
    let mut message = SseMessage::default();
    for line in text.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut message.name),
            "id" => message.id = Some(value.to_owned()),
            "data" => message.data.push_str(value),
            _ => {}
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_complete_for_any_chunk_size() {
        let text = "event: ready\nretry: 2000\nid: r-1\ndata: {\"a\":1}\n\n: heartbeat\nid: r-2\n\nevent: x\n\n";
        for step in [1, 2, 7, text.len()] {
            let mut parser = SseParser::default();
            let messages: Vec<_> =
                text.as_bytes().chunks(step).flat_map(|bytes| parser.feed(bytes)).collect();
            let names: Vec<_> = messages.iter().map(|message| message.name.as_str()).collect();
            assert_eq!(names, ["ready", "", "x"], "in steps of {step}");
            assert_eq!(messages[0].data, "{\"a\":1}");
            assert_eq!(messages[1].id.as_deref(), Some("r-2"));
        }
    }

    #[test]
    fn message_without_end_is_skipped_in_bounded_memory() {
        let mut parser = SseParser::default();
        for _ in 0..100 {
            assert!(parser.feed(&[b'a'; 64 * 1024]).is_empty());
            assert!(parser.buffer.len() <= MESSAGE_BYTES_MAX);
        }
        assert!(parser.feed(b"\n\n").is_empty(), "the rest of the skipped message");
        assert_eq!(parser.feed(b"event: next\n\n")[0].name, "next");
    }
}
