//! The log of alerts: saved only over the version that was read.

use surehook_core::{
    alert::{AlertInputs, AlertRules, log::AlertLog},
    store::StoredAlerts,
};

use super::StoreFixture;

/// A log with an alert.
fn firing_log(dead_letters: u64) -> AlertLog {
    let mut log = AlertLog::default();
    let inputs = AlertInputs { dead_letters, ..AlertInputs::default() };
    assert!(log.step(&AlertRules::default(), &inputs, true));
    log
}

pub async fn log_of_alerts_survives_a_restart(mut fixture: StoreFixture) {
    assert_eq!(fixture.load_alerts().await.unwrap(), StoredAlerts::default());
    let log = firing_log(1000);
    assert_eq!(fixture.save_alerts(0, log.clone()).await.unwrap(), Some(1));
    fixture.reopen().await;
    assert_eq!(fixture.load_alerts().await.unwrap(), StoredAlerts { version: 1, log });
}

pub async fn log_of_alerts_is_saved_only_over_the_version_that_was_read(fixture: StoreFixture) {
    for version in 0..3 {
        let (first, second) = (firing_log(1000 + version), firing_log(2000 + version));
        let (one, two) = tokio::join!(
            fixture.save_alerts(version, first.clone()),
            fixture.save_alerts(version, second.clone()),
        );
        let (one, two) = (one.unwrap(), two.unwrap());
        let winner = match (one, two) {
            (Some(saved), None) => (saved, first),
            (None, Some(saved)) => (saved, second),
            other => panic!("one of two is saved: {other:?}"),
        };
        let expected = StoredAlerts { version: version + 1, log: winner.1 };
        assert_eq!((winner.0, fixture.load_alerts().await.unwrap()), (version + 1, expected));
    }
    assert_eq!(fixture.save_alerts(1, AlertLog::default()).await.unwrap(), None);
}
