//! Syntax check of a jq filter, with the position of the first error.
//!
//! Calls jaq's parser directly, because its loader drops the details of an error.

use jaq_core::load::{
    Lexer, Parser,
    lex::{StrPart, Tok, Token},
    span,
};

use super::JqError;

/// About a screenful. Longer logic belongs into the program that receives the event.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Each token can be one more level for the parser, as in `----1`; see [`super::STACK_BYTES`].
const TOKENS_MAX: usize = 1000;

/// Nesting of brackets, checked before anything recurses.
const NESTING_MAX: usize = 100;

/// Refuses a filter that is malformed or too large.
pub(super) fn check_syntax(text: &str) -> Result<(), JqError> {
    if text.len() > TEXT_BYTES_MAX || max_nesting(text) > NESTING_MAX {
        return Err(JqError::TooLarge);
    }
    let tokens = Lexer::new(text).lex().map_err(|errors| {
        let (expected, rest) = &errors[0];
        syntax_error(text, expected.as_str(), first_char(rest))
    })?;
    if count_tokens(&tokens) > TOKENS_MAX {
        return Err(JqError::TooLarge);
    }
    let parsed = Parser::new(&tokens).parse(|parser| parser.term());
    parsed.map(drop).map_err(|errors| {
        let (expected, found) = &errors[0];
        syntax_error(text, expected.as_str(), Token::opt_as_str(*found, text))
    })
}

/// Line and column of a part of a text, both counted from 1.
pub(super) fn position(text: &str, part: &str) -> (usize, usize) {
    let before = &text[..span(text, part).start];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn syntax_error(text: &str, expected: &str, found: &str) -> JqError {
    let (line, column) = position(text, found);
    let found = match found.lines().next() {
        None => "the end".to_owned(),
        Some(found) => format!("`{found}`"),
    };
    JqError::Syntax { line, column, expected: expected.to_owned(), found }
}

/// The lexer returns the unread rest; its first character is where it stopped.
fn first_char(rest: &str) -> &str {
    let end = rest.chars().next().map_or(0, char::len_utf8);
    &rest[..end]
}

/// The deepest nesting of brackets. Brackets in strings count too, which only makes it stricter.
fn max_nesting(text: &str) -> usize {
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

fn count_tokens(tokens: &[Token<&str>]) -> usize {
    let inner = |Token(_, kind): &Token<&str>| match kind {
        Tok::Block(tokens) => count_tokens(tokens),
        Tok::Str(parts) => parts.iter().map(count_part).sum(),
        Tok::Word | Tok::Var | Tok::Fmt | Tok::Num | Tok::Sym => 0,
    };
    tokens.iter().map(|token| 1 + inner(token)).sum()
}

fn count_part(part: &StrPart<&str, Token<&str>>) -> usize {
    match part {
        StrPart::Term(token) => count_tokens(std::slice::from_ref(token)),
        StrPart::Str(_) | StrPart::Char(_) => 1,
    }
}
