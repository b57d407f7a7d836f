//! Parses `multipart/form-data`, as far as the tests need it.

#[derive(Clone, Debug)]
pub(crate) struct FormPart {
    pub(crate) name: String,
    pub(crate) filename: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// Parses the parts of a form; `None` if it is not one.
pub(crate) fn parse(content_type: &str, body: &[u8]) -> Option<Vec<FormPart>> {
    let (kind, boundary) = content_type.split_once("boundary=")?;
    if !kind.starts_with("multipart/form-data") {
        return None;
    }
    let boundary = format!("--{}", boundary.trim_matches('"'));
    // Nothing precedes the first boundary, and only `--` follows the last one.
    let body = body.strip_prefix(boundary.as_bytes())?;
    let between = format!("\r\n{boundary}");
    let mut parts = Vec::new();
    let mut rest = body;
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let end = find(part, between.as_bytes())?;
        parts.push(parse_part(&part[..end])?);
        rest = &part[end + between.len()..];
    }
    rest.starts_with(b"--").then_some(parts)
}

fn parse_part(part: &[u8]) -> Option<FormPart> {
    let head_end = find(part, b"\r\n\r\n")?;
    let head = std::str::from_utf8(&part[..head_end]).ok()?;
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        let mut named = lines.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.trim())
    };
    let disposition = header("content-disposition")?;
    let parameter = |name: &str| {
        let start = format!("{name}=\"");
        let mut all =
            disposition.split(';').filter_map(|parameter| parameter.trim().strip_prefix(&start));
        all.next().map(|value| value.trim_end_matches('"').to_owned())
    };
    Some(FormPart {
        name: parameter("name")?,
        filename: parameter("filename"),
        content_type: header("content-type").map(str::to_owned),
        bytes: part[head_end + 4..].to_vec(),
    })
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
