//! Changes of the configuration while another node changes it, too.

use std::sync::atomic::{AtomicUsize, Ordering};

use surehook_core::store::{AdminStore as _, ConfigChange, ConfigChangeResult};
use surehook_engine::ConfigChangeError;
use surehook_types::store_error::StoreError;
use tokio::{runtime::Handle, task::block_in_place};

use crate::support::{TestEngine, put_source};

/// Changes the configuration in the store, as another node does.
fn change_on_another_node(test: &TestEngine, change: ConfigChange) {
    let change = async {
        let current = test.store.load_configuration().await.unwrap();
        let result = test.store.change(vec![change], current.version, test.engine.clock().now());
        assert!(matches!(result.await.unwrap(), ConfigChangeResult::Changed(_)));
    };
    block_in_place(|| Handle::current().block_on(change));
}

#[tokio::test(flavor = "multi_thread")]
async fn change_overtaken_by_another_node_is_planned_again() {
    let test = TestEngine::start().await;
    let plans = AtomicUsize::new(0);

    let sources = test
        .engine
        .change::<_, ConfigChangeError>(|configuration| {
            if plans.fetch_add(1, Ordering::Relaxed) == 0 {
                change_on_another_node(&test, put_source("theirs"));
            }
            Ok((vec![put_source("ours")], configuration.sources.len()))
        })
        .await
        .unwrap();

    assert_eq!((plans.into_inner(), sources), (2, 2), "planned for what the other node stored");
    assert!(test.engine.source("ours").is_ok() && test.engine.source("theirs").is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn condition_of_a_change_is_checked_against_what_another_node_stored() {
    let test = TestEngine::start().await;
    let before = test.store.load_configuration().await.unwrap();
    let plans = AtomicUsize::new(0);

    let changed = test
        .engine
        .change::<(), ConfigChangeError>(|configuration| {
            // As `If-Match` does.
            if configuration.sources != before.sources {
                return Err(StoreError::Refused("changed meanwhile".to_owned()).into());
            }
            if plans.fetch_add(1, Ordering::Relaxed) == 0 {
                change_on_another_node(&test, put_source("theirs"));
            }
            Ok((vec![put_source("ours")], ()))
        })
        .await;

    assert!(changed.is_err());
    assert!(test.engine.source("ours").is_err(), "nothing was changed");
    assert!(test.engine.source("theirs").is_ok(), "what the other node stored is in use");
}
