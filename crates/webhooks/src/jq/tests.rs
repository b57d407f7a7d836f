use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

fn input(json: &str) -> JsonInput {
    JsonInput::parse(json.as_bytes()).unwrap()
}

fn first_output(filter: &str, json: &str) -> Result<Option<JqOutput>, JqError> {
    JqFilter::compile(filter)?.first_output(&input(json))
}

fn number(text: &str) -> JqOutput {
    JqOutput::Number(text.to_owned())
}

fn text(text: &str) -> JqOutput {
    JqOutput::Text(text.to_owned())
}

fn json(text: &str) -> JqOutput {
    JqOutput::Json(text.to_owned())
}

#[test]
fn filter_matches_by_truthiness_of_first_output() {
    let event = r#"{"type":"message","data":{"from":"5511","n":3,"tags":["vip"],"text":"Olá 👋"}}"#;
    let cases = [
        (r#".type == "message""#, true),
        (r#".type == "status""#, false),
        (".missing", false),
        (".missing.deeper.still", false),
        ("empty", false),
        ("null", false),
        ("false, true", false),
        ("0", true),
        (r#""""#, true),
        (".data.n > 2 and .data.n < 4", true),
        (r#".data.tags | index("vip")"#, true),
        (r#".data.tags | contains(["v"])"#, true),
        (r#".data.tags | any(. == "none")"#, false),
        (r#".data.text | test("👋$")"#, true),
        (r#".data.text | startswith("Olá")"#, true),
        (r#".type as $t | ["message", "status"] | index($t) != null"#, true),
        (r#".data.from | test("^55[0-9]{2}$")"#, true),
        (r#".data | has("from")"#, true),
        (r#".data.from? // "none" | length == 4"#, true),
        ("[.. | numbers] | add == 3", true),
        ("def is(t): .type == t; is(\"message\")", true),
    ];
    for (filter, expected) in cases {
        let is_match =
            JqFilter::compile(filter).unwrap().is_match(&input(event), &EventVariables::default());
        assert_eq!(is_match, Ok(expected), "filter: {filter}");
    }
}

#[test]
fn first_output_is_the_result() {
    let cases = [
        (".a", r#"{"a":null}"#, Some(JqOutput::Null)),
        (".a", r#"{"a":true}"#, Some(JqOutput::Bool(true))),
        (".a", r#"{"a":"é\n\u0000"}"#, Some(text("é\n\0"))),
        (".a[1]", r#"{"a":[1,"two"]}"#, Some(text("two"))),
        (".[]", "[1,2]", Some(number("1"))),
        (".[]", "[]", None),
        (".[] | select(.k == 2) | .v", r#"[{"k":1},{"k":2,"v":"x"}]"#, Some(text("x"))),
        ("{a, b: .c}", r#"{"a":[1, 2],"c":"\""}"#, Some(json(r#"{"a":[1,2],"b":"\""}"#))),
        (r#""\(.a):\(.b)""#, r#"{"a":"x","b":[1]}"#, Some(text("x:[1]"))),
        (".a | fromjson | .id", r#"{"a":"{\"id\":\"evt\"}"}"#, Some(text("evt"))),
        ("[.[] | tostring] | join(\"-\")", r#"[1,"a",null]"#, Some(text("1-a-null"))),
        (". * {a:{c:2}}", r#"{"a":{"b":1,"c":1}}"#, Some(json(r#"{"a":{"b":1,"c":2}}"#))),
        (". - [2, \"a\"]", r#"[1,2,"a",3]"#, Some(json("[1,3]"))),
        (
            "sort",
            r#"[{},[],"b","a",2,1,true,null]"#,
            Some(json(r#"[null,true,1,2,"a","b",[],{}]"#)),
        ),
        (".a.b |= . + 1 | .a.b", r#"{"a":{"b":1}}"#, Some(number("2"))),
        ("del(.a) | keys", r#"{"b":1,"a":2}"#, Some(json(r#"["b"]"#))),
        ("to_entries[0].key", r#"{"b":1}"#, Some(text("b"))),
        (r#"gsub("[^0-9]"; "")"#, r#""+55 (11) 9""#, Some(text("55119"))),
        (".[2:4]", r#""abcdef""#, Some(text("cd"))),
        ("indices(\"a\")", r#""aéa""#, Some(json("[0,2]"))),
        ("indices([1,2])", "[0,1,2,1,2]", Some(json("[1,3]"))),
        (".[[1]]", "[0,1,1]", Some(json("[1,2]"))),
        ("bsearch(3), bsearch(2)", "[1,3]", Some(number("1"))),
        ("length", r#""né""#, Some(number("2"))),
        ("-5 | length", "null", Some(number("5"))),
        ("try error(\"x\") catch .", "null", Some(text("x"))),
        ("[limit(3; range(10))]", "null", Some(json("[0,1,2]"))),
        ("reduce .[] as $x (0; . + $x)", "[1,2,3]", Some(number("6"))),
        ("[.[] as [$a, $b] | $b]", "[[1,2],[3,4]]", Some(json("[2,4]"))),
        ("last(recurse(if . < 5 then . + 1 else empty end))", "1", Some(number("5"))),
        ("walk(if type == \"number\" then . + 1 else . end)", "[1,[2]]", Some(json("[2,[3]]"))),
        ("flatten", "[1,[2,[3]]]", Some(json("[1,2,3]"))),
        ("paths(numbers) | tojson", r#"{"a":[5]}"#, Some(text(r#"["a",0]"#))),
        ("fromdate", r#""1970-01-01T00:01:00Z""#, Some(number("60"))),
        ("@base64", r#""hi""#, Some(text("aGk="))),
        ("unique", "[2,1,2]", Some(json("[1,2]"))),
        ("group_by(.a) | length", r#"[{"a":1},{"a":2},{"a":1}]"#, Some(number("2"))),
    ];
    for (filter, json, expected) in cases {
        assert_eq!(first_output(filter, json), Ok(expected), "{filter} on {json}");
    }
}

#[test]
fn numbers_keep_their_spelling_and_precision() {
    let cases = [
        (".id", r#"{"id":9007199254740993}"#, "9007199254740993"),
        (".id", r#"{"id":123456789012345678901234567890}"#, "123456789012345678901234567890"),
        (".id", r#"{"id":-18446744073709551616}"#, "-18446744073709551616"),
        (".id", r#"{"id":1.10}"#, "1.10"),
        (".id", r#"{"id":1e400}"#, "1e400"),
        (".id + 1", r#"{"id":9223372036854775807}"#, "9223372036854775808"),
        (".id | tonumber", r#"{"id":"18446744073709551616"}"#, "18446744073709551616"),
    ];
    for (filter, json, expected) in cases {
        assert_eq!(first_output(filter, json), Ok(Some(number(expected))), "{filter} on {json}");
    }
    let digits = "9".repeat(1000);
    assert_eq!(first_output(".", &digits), Ok(Some(number(&digits))));
}

#[test]
fn runtime_error_is_reported_and_is_not_a_false_match() {
    let cases = [
        (".a.b", r#"{"a":"text"}"#, r#"cannot index "text" with "b""#),
        (".[]", "1", "cannot use 1 as iterable (array or object)"),
        (r#"error("refused")"#, "null", "refused"),
        (r#". + 1"#, r#""a""#, r#"cannot calculate "a" + 1"#),
        ("{(.): 1}", "1", "cannot use 1 as string"),
        (r#".[1]"#, r#"{"a":1}"#, r#"cannot index {"a":1} with 1"#),
        ("fromjson", r#""nope""#, "the body is not JSON: expected ident at line 1 column 2"),
    ];
    for (filter, json, message) in cases {
        let jq = JqFilter::compile(filter).unwrap();
        let failed = Err(JqError::Runtime { message: message.to_owned() });
        assert_eq!(
            jq.is_match(&input(json), &EventVariables::default()),
            failed,
            "{filter} on {json}"
        );
    }
    let long = format!(r#""{}""#, "é".repeat(10_000));
    let Err(JqError::Runtime { message }) = first_output(".a", &long) else { panic!("no error") };
    assert!(message.len() <= 203 && message.ends_with('…'), "{message}");
}

#[test]
fn malformed_filter_reports_line_and_column() {
    let cases = [
        (".type ==", "line 1, column 9: expected term, found the end of the filter"),
        ("", "line 1, column 1: expected term, found the end of the filter"),
        (".a | (.b", "line 1, column 9: expected closing parenthesis, found the end of the filter"),
        (".a\n | § .b", "line 2, column 4: expected token, found `§`"),
        (".a = = 1", "line 1, column 6: expected term, found `=`"),
        ("\"é\" | nope", "line 1, column 7: there is no filter `nope` with 0 arguments"),
        (".a | test()", "line 1, column 11: expected term, found `)`"),
        ("$x", "line 1, column 1: there is no variable `$x`"),
        (r#"import "a" as a; a::f"#, "line 1, column 8: expected nothing, found `\"a\"`"),
    ];
    for (filter, expected) in cases {
        let error = JqFilter::compile(filter).unwrap_err().to_string();
        assert_eq!(error, format!("filter, {expected}"), "filter: {filter}");
    }
}

#[test]
fn filter_cannot_access_anything_outside_the_event() {
    let unavailable = [
        "env",
        "env.HOME",
        "now",
        "input",
        "inputs",
        "debug",
        "debug(1)",
        "stderr",
        "halt",
        "halt(1)",
        "halt_error",
        "localtime",
        r#"strflocaltime("%Z")"#,
        r#"strptime("%Q")"#,
    ];
    for filter in unavailable {
        let error = JqFilter::compile(filter).unwrap_err().to_string();
        assert!(error.contains("is not available here"), "{filter}: {error}");
    }
    for filter in ["$ENV", "$ENV.HOME", "input_filename", "get_search_list", "$__prog_args"] {
        assert!(JqFilter::compile(filter).is_err(), "filter: {filter}");
    }
    // When jaq is updated: review each new name, and change the count or exclude it.
    let mut names: Vec<_> = natives::native_filters().map(|(name, ..)| name).collect();
    names.sort_unstable();
    assert_eq!(names.len(), 104, "{names:?}");
}

/// Runs a filter with half the stack of a worker thread, so that passing leaves a margin.
fn run_on_small_stack(filter: &str, json: &str) -> Result<Option<JqOutput>, JqError> {
    let (jq, input) = (JqFilter::compile(filter).unwrap(), input(json));
    let thread = thread::Builder::new().stack_size(1 << 20).spawn(move || jq.first_output(&input));
    thread.unwrap().join().unwrap()
}

#[test]
fn endless_run_is_stopped_by_step_limit() {
    let cases = [
        ("a loop", "until(false; .)"),
        ("a loop that catches errors", "try until(false; .) catch 1"),
        ("a loop without values", "last(repeat(empty))"),
        ("a definition that only calls itself", "def f: f; f"),
        ("a range from the event", "[range(.)]"),
        ("a range with step zero", "last(range(0; 1; 0))"),
        ("loops in loops", "[range(.)] | [.[] as $a | .[] as $b | .[] as $c | 1]"),
        ("a long text", r#""x" * ."#),
        ("an endless text", r#""x" * 100000000000000000000"#),
        ("a text that doubles", r#"reduce range(100) as $i ("x"; . + .)"#),
        ("an array that doubles", "reduce range(100) as $i ([1]; . + .)"),
        ("a small value that prints long", "reduce range(60) as $i (1; [., .]) | tojson"),
        (
            "a small value that compares long",
            "def twins: reduce range(60) as $i (1; [., .]); twins == twins",
        ),
        ("a small value that merges long", "reduce range(60) as $i ({}; {a: ., b: .}) | . * ."),
        ("a costly pattern", r#""a" * 20000 | test("(((a{50}){50}){50})x")"#),
        ("many patterns", r#"[range(.)] | map(tostring | test("a+b"))"#),
    ];
    for (name, filter) in cases {
        let result = run_on_small_stack(filter, "100000000");
        assert_eq!(result, Err(JqError::TooMuchWork), "case: {name}");
    }
}

#[test]
fn deep_recursion_is_stopped_before_stack_overflow() {
    let cases = [
        ("arrays in arrays", "reduce range(100000) as $i (null; [.])"),
        ("objects in objects", "reduce range(100000) as $i (null; {a: .})"),
        ("updates in updates", "reduce range(100000) as $i ({}; .a = {b: .})"),
        ("a loop that nests", "last(recurse([.]))"),
        ("a definition that waits for itself", "def f: 1 + f; f"),
    ];
    for (name, filter) in cases {
        let result = run_on_small_stack(filter, "null");
        assert_eq!(result, Err(JqError::TooDeep), "case: {name}");
    }
    // Whether these succeed depends on the frame size of the build. They must only return.
    let deepest = "[".repeat(128) + &"]".repeat(128);
    let multiplying = "def a(g): g | g; def b(g): a(a(a(g))); def c(g): b(b(b(g))); c(c(c(.)))";
    let recursive = ["tojson", "flatten(200)", "walk(.)", "[..]", "tojson | fromjson", multiplying];
    for filter in recursive {
        for nest in [0, 120] {
            let filter = format!("reduce range({nest}) as $i (.; [.]) | {filter}");
            drop(run_on_small_stack(&filter, &deepest));
        }
    }
    assert!(matches!(
        run_on_small_stack("fromjson", &format!("\"{}\"", "[".repeat(100_000))),
        Err(JqError::Runtime { .. })
    ));
}

#[test]
fn bounded_recursion_is_allowed() {
    let factorial = "def f: if . <= 1 then 1 else . * (. - 1 | f) end; f";
    assert_eq!(first_output(factorial, "20"), Ok(Some(number("2432902008176640000"))));
}

#[test]
fn oversized_filter_is_refused() {
    let cases = [
        ("long", ". ".repeat(5000)),
        ("brackets", "[".repeat(101) + &"]".repeat(101)),
        ("many tokens", "-".repeat(1000) + "1"),
        ("open brackets", "(".repeat(8000)),
        ("brackets with comments", "[#]\n".repeat(101) + "1" + &"]".repeat(101)),
        ("comments over two lines", "[#\\\n]\n".repeat(101) + "1" + &"]".repeat(101)),
        ("brackets with strings", r#"[")","#.repeat(101) + "1" + &"]".repeat(101)),
        ("escaped quotes", r#"["\")","#.repeat(101) + "1" + &"]".repeat(101)),
        ("interpolations", r#""\("#.repeat(101) + "1" + &")\"".repeat(101)),
        ("other closing brackets", "[)".repeat(101)),
    ];
    for (name, filter) in cases {
        assert_eq!(JqFilter::compile(&filter).unwrap_err(), JqError::TooLarge, "case: {name}");
    }
    let filters_that_fit = [
        "-".repeat(999) + "1",
        "[".repeat(99) + &"]".repeat(99),
        ".|".repeat(499) + ".",
        r#"["([{", 1], # ([{"#.to_owned() + "\n" + &r#"["([{"], "#.repeat(150) + ".",
        r#""\("#.repeat(99) + "1" + &")\"".repeat(99),
    ];
    for filter in filters_that_fit {
        assert!(JqFilter::compile(&filter).is_ok(), "filter: {filter}");
    }
}

#[test]
fn input_that_is_not_json_or_too_deep_is_refused() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let cases = [
        ("empty", String::new(), Err("the body is not JSON: EOF")),
        ("byte order mark", "\u{feff}{\"a\":1}".to_owned(), Ok(r#"{"a":1}"#)),
        ("last name counts", r#"{"a":1,"a":2}"#.to_owned(), Ok(r#"{"a":2}"#)),
        ("not a number", "NaN".to_owned(), Err("the body is not JSON: expected value")),
        ("comment", "[1] # one".to_owned(), Err("the body is not JSON: trailing characters")),
        ("two values", "[] []".to_owned(), Err("the body is not JSON: trailing characters")),
        ("half a surrogate pair", r#"["\ud800"]"#.to_owned(), Err("the body is not JSON: ")),
        ("128 levels", nested(128), Ok("[[[[")),
        ("129 levels", nested(129), Err("the body is nested more than 128 levels")),
        ("deep", nested(10_000), Err("the body is nested more than 128 levels")),
        ("only brackets", "[".repeat(1 << 20), Err("the body is not JSON: EOF")),
        ("brackets in a string", format!(r#"["{}\""]"#, "[".repeat(200)), Ok("[\"[[")),
        ("long number", "1".repeat(1001), Err("the body has a number of more than 1000 digits")),
        ("long fraction", "0.".to_owned() + &"1".repeat(1001), Err("the body has a number")),
    ];
    let identity = JqFilter::compile(".").unwrap();
    for (name, body, expected) in cases {
        let read = JsonInput::parse(body.as_bytes()).map_err(|error| error.to_string());
        let read = read.map(|input| identity.first_output(&input));
        match (read, expected) {
            (Ok(Ok(Some(JqOutput::Json(found)))), Ok(beginning)) | (Err(found), Err(beginning)) => {
                assert!(found.starts_with(beginning), "case: {name}: {found}");
            }
            (read, expected) => panic!("case: {name}: {read:?}, expected {expected:?}"),
        }
    }
    assert_eq!(JsonInput::parse(b"\"\xff\"").unwrap_err(), ParseJsonInputError::NotUtf8);
}

#[test]
fn oversized_or_non_utf8_output_is_an_error() {
    let long = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    assert!(matches!(first_output(".", &long(OUTPUT_BYTES_MAX)), Ok(Some(JqOutput::Text(_)))));
    assert_eq!(first_output(".", &long(OUTPUT_BYTES_MAX + 1)), Err(JqError::LongOutput));
    let not_text = JqError::Runtime { message: "the result is not UTF-8".to_owned() };
    assert_eq!(first_output("@base64d", r#""/w==""#), Err(not_text));
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pairs = pairs.iter().map(|(name, value)| {
        (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
    });
    pairs.collect()
}

#[test]
fn form_is_an_object_with_the_json_of_its_payload() {
    let form = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    for (pairs, body, filter, expected) in [
        (&[form][..], "command=%2Fdeploy&text=a+b", ".", r#"{"command":"/deploy","text":"a b"}"#),
        (&[form], "a=1&b=2&a=3&a=", ".", r#"{"a":["1","3",""],"b":"2"}"#),
        (&[form], "payload=%7B%22n%22%3A9007199254740993%7D&x=1", ".payload.n", "9007199254740993"),
        (&[form], "payload=[1,[2]]", ".payload[1][0]", "2"),
        // A text that is not a JSON object or array stays a string.
        (&[form], "payload=12", ".payload", r#""12""#),
        (&[form], "payload=%7B", ".payload", r#""{""#),
        (&[form], "", ".", "{}"),
        (&[form], "a=%ff", ".a", "\"\u{fffd}\""),
        // Many senders declare JSON to be a form.
        (&[form], r#"{"a":1}"#, ".a", "1"),
        (&[], r#"{"a":1}"#, ".a", "1"),
    ] {
        let input = JsonInput::parse_request(&headers(pairs), body.as_bytes()).unwrap();
        let output = JqFilter::compile(filter).unwrap();
        let output = output.transform(&input, &EventVariables::default());
        assert_eq!(output, Ok(Some(expected.to_owned())), "{body}");
    }
    let text = JsonInput::parse_request(&headers(&[("content-type", "text/plain")]), b"a=1");
    assert!(matches!(text, Err(ParseJsonInputError::Syntax(_))), "{text:?}");
}

#[test]
fn route_filter_sees_kind_source_and_visible_headers() {
    let headers =
        headers(&[("X-GitHub-Event", "push"), ("x-tag", "a"), ("x-tag", "b"), ("x-secret", "s")]);
    let is_visible = |name: &HeaderName| name != "x-secret";
    let variables = EventVariables::new(Some("push"), Some("github"), &headers, &is_visible);
    let run = |text: &str, variables| {
        JqFilter::for_route(text).transform(&input(r#"{"a":1}"#), variables)
    };
    for (text, expected) in [
        ("[$kind, $source]", r#"["push","github"]"#),
        (r#"$headers["x-github-event"]"#, r#""push""#),
        ("$headers", r#"{"x-github-event":"push","x-tag":"a, b"}"#),
        // Built-in filters and own variables do not get in the way.
        (r#".a as $kind | [$kind, ($headers | keys | length)]"#, "[1,2]"),
        (r#"def f($source): $source + $kind; f("x")"#, r#""xpush""#),
        (r#"[1,2] | map(. + 1) | map(select(. > 2)) + [$source]"#, r#"[3,"github"]"#),
    ] {
        assert_eq!(run(text, &variables), Ok(Some(expected.to_owned())), "{text}");
    }
    let nothing = Ok(Some("[null,null,{}]".to_owned()));
    assert_eq!(run("[$kind, $source, $headers]", &EventVariables::default()), nothing);
    // A key must not depend on headers that no signature covers.
    let error = JqFilter::compile("$headers").unwrap_err();
    assert!(matches!(error, JqError::Undefined { .. }), "{error}");
}

#[test]
fn route_filter_is_compiled_on_first_use_and_reports_its_error_then() {
    let (valid, invalid) = (JqFilter::for_route(".a"), JqFilter::for_route(".a | nope"));
    assert!(!valid.is_compiled() && !invalid.is_compiled());
    for _ in 0..2 {
        assert_eq!(valid.is_match(&input(r#"{"a":1}"#), &EventVariables::default()), Ok(true));
        let error = invalid.is_match(&input("{}"), &EventVariables::default()).unwrap_err();
        assert_eq!(error.code(), "undefined");
    }
    assert!(valid.is_compiled() && valid.check().is_ok() && invalid.check().is_err());
}

#[test]
fn every_builtin_filter_compiles_with_what_is_reachable_from_its_name() {
    let Builtins { definitions, natives } = Builtins::all();
    let definitions = definitions.iter().map(|def| (def.name, def.args.len()));
    let natives = natives.iter().map(|(name, args, _)| (*name, args.len()));
    let callable = |(name, _): &(&str, usize)| !name.starts_with('!');
    let all: Vec<_> = definitions.chain(natives).filter(callable).collect();
    assert!(all.len() > 150, "{}", all.len());
    for (name, arity) in all {
        let text = match arity {
            0 => name.to_owned(),
            _ => format!("{name}({})", vec!["."; arity].join("; ")),
        };
        let compiled = compile_with(&text, &[], Builtins::reachable_from(&text));
        assert!(compiled.is_ok(), "{text}: {:?}", compiled.err());
    }
    let small = Builtins::reachable_from(".amount > 10 and .paid");
    assert!(small.definitions.is_empty() && small.natives.len() < 10);
}

#[test]
fn filters_and_inputs_are_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    shared::<JqFilter>();
    shared::<JsonInput>();
}

fn transform(text: &str, body: &str) -> Result<Option<String>, JqError> {
    JqFilter::compile(text).unwrap().transform(&input(body), &EventVariables::default())
}

#[test]
fn transform_returns_its_single_output_as_json() {
    let body =
        r#"{"id":9007199254740993,"big":123456789012345678901234567890,"pi":3.10,"n":"ü","a":[1]}"#;
    for (text, expected) in [
        (".", Some(body)),
        ("{id}", Some(r#"{"id":9007199254740993}"#)),
        (".big", Some("123456789012345678901234567890")),
        (".id + 1", Some("9007199254740994")),
        ("{p: .pi, x: [.id, null]}", Some(r#"{"p":3.10,"x":[9007199254740993,null]}"#)),
        (".n", Some("\"ü\"")),
        (".missing", Some("null")),
        ("del(.id, .big, .pi, .n)", Some(r#"{"a":[1]}"#)),
        ("empty", None),
        ("select(.id == 1)", None),
        (r#""a\u0000\n""#, Some(r#""a\u0000\n""#)),
    ] {
        assert_eq!(transform(text, body), Ok(expected.map(ToOwned::to_owned)), "{text}");
    }
}

#[test]
fn transform_without_single_json_output_fails() {
    for (text, error) in [
        (".a, .a", JqError::ManyOutputs),
        (".a[]", JqError::ManyOutputs),
        ("nan", JqError::ResultNotJson),
        ("[infinite]", JqError::ResultNotJson),
        ("def f: f; f", JqError::TooMuchWork),
        ("[range(100000000)]", JqError::TooMuchWork),
        (".a, def f: f; f", JqError::TooMuchWork),
        (r#"("x" * 2000000)"#, JqError::LongOutput),
        ("reduce range(1000) as $i (.; [.])", JqError::TooDeep),
    ] {
        assert_eq!(transform(text, r#"{"a":[1,2]}"#), Err(error), "{text}");
    }
    let failed = transform(".a.b", r#"{"a":[1,2]}"#);
    assert!(matches!(failed, Err(JqError::Runtime { .. })), "{failed:?}");
}

proptest! {
    #[test]
    fn identity_transform_keeps_every_number(digits in "-?[1-9][0-9]{0,60}(\\.[0-9]{1,20})?(e[+-]?[0-9]{1,3})?") {
        let body = format!("[{digits}]");
        prop_assert_eq!(transform(".", &body), Ok(Some(body)));
    }
}
