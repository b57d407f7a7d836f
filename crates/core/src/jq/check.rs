//! What is wrong with the text of a filter, and where.
//!
//! jaq's parser is asked here, because it says more about an error than its loader passes on.

use jaq_core::load::{
    Lexer, Parser,
    lex::{StrPart, Tok, Token},
    span,
};

use super::JqError;

/// A screenful. Longer logic belongs into the program that receives the event.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Each token can be one more level for the parser, as in `----1`; see [`super::STACK_BYTES`].
const TOKENS_MAX: usize = 1000;

/// Brackets within each other, looked at before anything recurses.
const NESTING_MAX: usize = 100;

/// Refuses a filter that is malformed or too large.
pub(super) fn check(text: &str) -> Result<(), JqError> {
    if text.len() > TEXT_BYTES_MAX || nesting(text) > NESTING_MAX {
        return Err(JqError::TooLarge);
    }
    let tokens = Lexer::new(text).lex().map_err(|errors| {
        let (expected, rest) = &errors[0];
        malformed(text, expected.as_str(), first_char(rest))
    })?;
    if count(&tokens) > TOKENS_MAX {
        return Err(JqError::TooLarge);
    }
    let parsed = Parser::new(&tokens).parse(|parser| parser.term());
    parsed.map(drop).map_err(|errors| {
        let (expected, found) = &errors[0];
        malformed(text, expected.as_str(), Token::opt_as_str(*found, text))
    })
}

/// Line and column of a part of a text, both counted from 1.
pub(super) fn position(text: &str, part: &str) -> (usize, usize) {
    let before = &text[..span(text, part).start];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn malformed(text: &str, expected: &str, found: &str) -> JqError {
    let (line, column) = position(text, found);
    let found = match found.lines().next() {
        None => "the end".to_owned(),
        Some(found) => format!("`{found}`"),
    };
    JqError::Syntax { line, column, expected: expected.to_owned(), found }
}

/// The lexer hands back all that is left; the first character is where it stopped.
fn first_char(rest: &str) -> &str {
    let end = rest.chars().next().map_or(0, char::len_utf8);
    &rest[..end]
}

/// How many brackets are open at once; those in strings count too, which does no harm.
fn nesting(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

fn count(tokens: &[Token<&str>]) -> usize {
    let inner = |Token(_, kind): &Token<&str>| match kind {
        Tok::Block(tokens) => count(tokens),
        Tok::Str(parts) => parts.iter().map(count_part).sum(),
        Tok::Word | Tok::Var | Tok::Fmt | Tok::Num | Tok::Sym => 0,
    };
    tokens.iter().map(|token| 1 + inner(token)).sum()
}

fn count_part(part: &StrPart<&str, Token<&str>>) -> usize {
    match part {
        StrPart::Term(token) => count(std::slice::from_ref(token)),
        StrPart::Str(_) | StrPart::Char(_) => 1,
    }
}
