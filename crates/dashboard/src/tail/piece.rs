//! Server-sent events as they come out of a stream.

/// The longest piece of news; longer ones are passed over.
const PIECE_BYTES_MAX: usize = 256 * 1024;

/// A piece of a stream of server-sent events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

/// Cuts a stream of server-sent events into its pieces. A comment alone is a piece without a name
/// and without data: somebody is there.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    rest: Vec<u8>,
    /// What is too long is passed over to its end.
    skips: bool,
}

impl Parser {
    /// Takes the next bytes and gives the pieces that are whole by now.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<Piece> {
        self.rest.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        while let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
            let piece: Vec<u8> = self.rest.drain(..end + 2).collect();
            if !std::mem::take(&mut self.skips) {
                pieces.push(piece_of(&String::from_utf8_lossy(&piece)));
            }
        }
        if self.rest.len() > PIECE_BYTES_MAX {
            // The last byte may be the first half of the end.
            let last = self.rest.pop();
            self.rest.clear();
            self.rest.extend(last);
            self.skips = true;
        }
        pieces
    }
}

fn piece_of(text: &str) -> Piece {
    let mut piece = Piece::default();
    for line in text.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut piece.name),
            "id" => piece.id = Some(value.to_owned()),
            "data" => piece.data.push_str(value),
            _ => {}
        }
    }
    piece
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_however_the_bytes_come() {
        let text = "event: ready\nretry: 2000\nid: r-1\ndata: {\"a\":1}\n\n: heartbeat\nid: r-2\n\nevent: x\n\n";
        for step in [1, 2, 7, text.len()] {
            let mut parser = Parser::default();
            let pieces: Vec<_> =
                text.as_bytes().chunks(step).flat_map(|bytes| parser.feed(bytes)).collect();
            let names: Vec<_> = pieces.iter().map(|piece| piece.name.as_str()).collect();
            assert_eq!(names, ["ready", "", "x"], "in steps of {step}");
            assert_eq!(pieces[0].data, "{\"a\":1}");
            assert_eq!(pieces[1].id.as_deref(), Some("r-2"));
        }
    }

    #[test]
    fn a_piece_without_an_end_takes_no_memory() {
        let mut parser = Parser::default();
        for _ in 0..100 {
            assert!(parser.feed(&[b'a'; 64 * 1024]).is_empty());
            assert!(parser.rest.len() <= PIECE_BYTES_MAX);
        }
        assert!(parser.feed(b"\n\n").is_empty(), "what was cut is passed over");
        assert_eq!(parser.feed(b"event: next\n\n")[0].name, "next");
    }
}
