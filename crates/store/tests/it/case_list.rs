//! Every conformance case must be listed in the macro, or it is not run.

use std::fs;

#[test]
fn every_conformance_case_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance");
    let list = fs::read_to_string(format!("{folder}/mod.rs")).unwrap();
    let mut cases = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.ends_with("fixture.rs") || path.ends_with("mod.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let names = text
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn ").or(line.strip_prefix("pub fn ")));
        for name in names.filter_map(|rest| rest.split(['(', '<']).next()) {
            let is_listed = [',', ';'].iter().any(|end| list.contains(&format!(" {name}{end}")));
            assert!(is_listed, "{name} in {} is not listed", path.display());
            cases += 1;
        }
    }
    assert!(cases > 90, "only {cases} cases were found");
}
