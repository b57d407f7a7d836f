//! Reads files named on the command line; `-` is standard input.

use std::{io::Read as _, path::Path};

use anyhow::Context as _;

pub(super) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
        return Ok(bytes);
    }
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

pub(super) fn read_text(file: &Path) -> anyhow::Result<String> {
    String::from_utf8(read(file)?).with_context(|| match file == Path::new("-") {
        true => "standard input is not valid UTF-8".to_owned(),
        false => format!("{} is not valid UTF-8", file.display()),
    })
}
