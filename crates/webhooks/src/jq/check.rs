//! Syntax check of a jq filter, with the position of the first error.
//!
//! Calls jaq's parser directly, because its loader drops the details of an error.

use jaq_core::load::{
    Lexer, Parser,
    lex::{StrPart, Tok, Token},
    span,
};

use super::JqError;

/// Roughly 200 lines. Longer logic belongs in the program that receives the event.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// Each token can add one level of parser recursion, as in `----1`; see [`super::STACK_BYTES`].
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

/// Line and column of a part of a text, both counted from 1. `part` must be a slice of `text`.
pub(super) fn position(text: &str, part: &str) -> (usize, usize) {
    let before = &text[..span(text, part).start];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn syntax_error(text: &str, expected: &str, found: &str) -> JqError {
    let (line, column) = position(text, found);
    let found = match found.lines().next() {
        None => "the end of the filter".to_owned(),
        Some(found) => format!("`{found}`"),
    };
    JqError::Syntax { line, column, expected: expected.to_owned(), found }
}

/// The lexer returns the unread rest; its first character is where it stopped.
fn first_char(rest: &str) -> &str {
    let end = rest.chars().next().map_or(0, char::len_utf8);
    &rest[..end]
}

/// The deepest nesting of brackets, as jaq's lexer reads them: those in comments and strings do not
/// count. One that is closed by another kind stays open, which only makes it stricter.
fn max_nesting(text: &str) -> usize {
    // The open brackets and quotes, innermost last. A string may contain brackets as `\(…)`.
    let mut open = Vec::new();
    let mut deepest = 0;
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        match (open.last(), char) {
            (Some('"'), '"') | (Some('('), ')') | (Some('['), ']') | (Some('{'), '}') => {
                open.pop();
            }
            (Some('"'), '\\') => open.extend(rest.next().filter(|char| *char == '(')),
            (Some('"'), _) => {}
            (_, '#') => rest = skip_comment(rest.as_str()).chars(),
            (_, '"' | '(' | '[' | '{') => open.push(char),
            _ => {}
        }
        deepest = deepest.max(open.iter().filter(|char| **char != '"').count());
    }
    deepest
}

/// The text after a comment. One that ends with an odd number of backslashes continues on the next line.
fn skip_comment(mut text: &str) -> &str {
    loop {
        let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
        let line = line.strip_suffix('\r').unwrap_or(line);
        let backslashes = line.chars().rev().take_while(|char| *char == '\\').count();
        if backslashes % 2 == 0 {
            return rest;
        }
        text = rest;
    }
}

fn count_tokens(tokens: &[Token<&str>]) -> usize {
    let inner = |Token(_, kind): &Token<&str>| match kind {
        Tok::Block(tokens) => count_tokens(tokens),
        Tok::Str(parts) => parts.iter().map(count_string_part_tokens).sum(),
        Tok::Word | Tok::Var | Tok::Fmt | Tok::Num | Tok::Sym => 0,
    };
    tokens.iter().map(|token| 1 + inner(token)).sum()
}

fn count_string_part_tokens(part: &StrPart<&str, Token<&str>>) -> usize {
    match part {
        StrPart::Term(token) => count_tokens(std::slice::from_ref(token)),
        StrPart::Str(_) | StrPart::Char(_) => 1,
    }
}
