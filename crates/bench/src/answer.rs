//! As much of an HTTP/1.1 answer as the generator needs: status, length, and what the gateway
//! decided.
//!
//! This runs once for each request on cores that the gateway needs, so it looks at each byte of
//! the head once and at the first bytes of the body. It expects `content-length`; an answer
//! without one (chunked) is refused, not guessed at.

use anyhow::{Context as _, Result, ensure};

/// What the gateway said about one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted,
    Duplicate,
}

/// A whole answer in the read buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
    /// How many bytes of the buffer the answer takes.
    pub(crate) len: usize,
}

impl<'a> Answer<'a> {
    /// Reads the answer at the start of `buffer`; `None` if more bytes are needed.
    pub(crate) fn parse(buffer: &'a [u8]) -> Result<Option<Self>> {
        let mut content_length = None;
        let mut line_at = 0;
        loop {
            let Some(line_len) = buffer[line_at..].iter().position(|byte| *byte == b'\n') else {
                return Ok(None);
            };
            let line = buffer[line_at..line_at + line_len].trim_ascii_end();
            if line.is_empty() {
                line_at += line_len + 1;
                break;
            }
            if line_at > 0 {
                content_length = content_length.or(content_length_of(line)?);
            }
            line_at += line_len + 1;
        }
        let status = status_of(buffer)?;
        let body_len = content_length.context("the answer has no content-length")?;
        let len = line_at.saturating_add(body_len);
        Ok(buffer.get(line_at..len).map(|body| Self { status, body, len }))
    }

    /// What the gateway decided, or nothing if the answer is neither of the two.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        const ACCEPTED: &[u8] = br#""status":"accepted""#;
        const DUPLICATE: &[u8] = br#""status":"duplicate""#;
        if self.status != 200 {
            return None;
        }
        // The first word is the word for the whole request.
        let word = self.body.strip_prefix(b"{")?;
        if word.starts_with(ACCEPTED) {
            Some(Verdict::Accepted)
        } else if word.starts_with(DUPLICATE) {
            Some(Verdict::Duplicate)
        } else {
            None
        }
    }
}

fn status_of(head: &[u8]) -> Result<u16> {
    let digits = head.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = digits.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    status.context("the answer does not begin with an HTTP/1.1 status line")
}

fn content_length_of(line: &[u8]) -> Result<Option<usize>> {
    const NAME: &[u8] = b"content-length:";
    if line.len() < NAME.len() || !line[..NAME.len()].eq_ignore_ascii_case(NAME) {
        return Ok(None);
    }
    let text = str::from_utf8(line[NAME.len()..].trim_ascii()).unwrap_or_default();
    ensure!(!text.is_empty(), "the answer's content-length is empty");
    let value = text.parse().with_context(|| format!("the answer's content-length is {text}"))?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
        Content-Length: 21\r\n\r\n{\"status\":\"accepted\"}";

    #[test]
    fn an_answer_is_read_only_when_it_is_whole() {
        for cut in 0..WHOLE.len() {
            assert_eq!(Answer::parse(&WHOLE[..cut]).unwrap(), None, "cut at {cut}");
        }
        let answer = Answer::parse(WHOLE).unwrap().unwrap();
        assert_eq!((answer.status, answer.len), (200, WHOLE.len()));
        assert_eq!(answer.verdict(), Some(Verdict::Accepted));
    }

    #[test]
    fn only_a_200_with_a_known_word_is_a_verdict() {
        let cases: [(&str, u16, &[u8], Option<Verdict>); 5] = [
            ("accepted", 200, br#"{"status":"accepted","events":[]}"#, Some(Verdict::Accepted)),
            (
                "duplicate",
                200,
                br#"{"status":"duplicate","skipped":true}"#,
                Some(Verdict::Duplicate),
            ),
            ("shed", 503, br#"{"status":"accepted"}"#, None),
            ("another word", 200, br#"{"status":"queued"}"#, None),
            ("empty", 200, b"", None),
        ];
        for (name, status, body, expected) in cases {
            let answer = Answer { status, body, len: 0 };
            assert_eq!(answer.verdict(), expected, "case: {name}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let cases = [
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length:\r\n\r\n",
            "ICY 200 OK\r\ncontent-length: 0\r\n\r\n",
        ];
        for case in cases {
            assert!(Answer::parse(case.as_bytes()).is_err(), "case: {case:?}");
        }
    }
}
