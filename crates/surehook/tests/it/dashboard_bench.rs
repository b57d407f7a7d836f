//! `surehook bench --only dashboard` measures every page of its table over a store that it filled.

use std::time::Duration;

use serde_json::Value;

use crate::support::process::run_surehook_within;

// Times are not asserted: other tests run at the same time.
#[tokio::test]
async fn heavy_dashboard_bench_reports_every_page() {
    let folder = tempfile::tempdir().unwrap();
    let command = ["bench", "--only", "dashboard", "--dashboard-events", "2000"];
    let options = ["--page-samples", "2", "--connections", "16", "--json"];
    let path = folder.path().to_str().unwrap();
    let args = [&command[..], &options, &["--folder", path]].concat();
    let output = run_surehook_within(Duration::from_secs(150), folder.path(), &args, &[]).await;
    assert_eq!(output.code, Some(0), "{output:?}");

    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let dashboard = &report["dashboard"];
    assert_eq!(dashboard["events"], 2000, "{dashboard}");
    assert!(dashboard["live_per_second"].as_f64().unwrap() > 0.0, "{dashboard}");
    let pages = dashboard["pages"].as_array().unwrap();
    for page in pages {
        assert_eq!(page["status"], 200, "{page}");
    }
    let mut paths = pages.iter().map(|page| page["page"].as_str().unwrap());
    assert!(paths.any(|page| page == "/conversations?phone={phone}"), "{pages:?}");
}
