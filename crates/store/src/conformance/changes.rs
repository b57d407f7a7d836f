//! Random changes of the configuration: the store's tables and the pure function must agree.

use std::time::Duration;

use proptest::{prelude::*, sample::select, test_runner::TestCaseResult};
use surehook_core::{
    destination::DestinationSpec,
    ids::{Id, IdKind},
    name::Name,
    source::SourceSpec,
    store::{ConfigChange, Configuration, StoredObject},
    time::{HumanDuration, Timestamp},
    verify::VerifySpec,
};

use super::{
    Harness, World, check,
    configure::route,
    samples::{destination, source},
};

/// A [`ConfigChange`], short enough to be read in a list of many. Few ids and few names, so that they
/// meet often.
#[derive(Clone, Copy, Debug)]
enum Edit {
    PutSource { id: u8, name: &'static str, window: u64 },
    PutDestination { id: u8, name: &'static str, concurrency: u32 },
    PutRoute { id: u8, from: &'static str, to: &'static str },
    DeleteSource { id: u8 },
    DeleteDestination { id: u8 },
    DeleteRoute { id: u8 },
}

fn id<K: IdKind>(number: u8) -> Id<K> {
    Id::new(Timestamp::from_millis(7), u128::from(number) << 48)
}

impl Edit {
    fn change(self) -> ConfigChange {
        match self {
            Self::PutSource { id: number, name, window } => {
                let spec = SourceSpec {
                    dedup_window: Some(HumanDuration::from_secs(window)),
                    // What a source said about secrets outlives it.
                    verify: Some(VerifySpec::Token { header: format!("X-{name}-{number}") }),
                    redact: vec!["pin".to_owned(); usize::from(number == 1)],
                    strip_secrets: window == 2,
                    ..source(name)
                };
                ConfigChange::PutSource(id(number), spec)
            }
            Self::PutDestination { id: number, name, concurrency } => {
                let spec = DestinationSpec { concurrency, ..destination(name) };
                ConfigChange::PutDestination(id(number), spec)
            }
            Self::PutRoute { id: number, from, to } => {
                ConfigChange::PutRoute(id(number), route(from, to))
            }
            Self::DeleteSource { id: number } => ConfigChange::DeleteSource(id(number)),
            Self::DeleteDestination { id: number } => ConfigChange::DeleteDestination(id(number)),
            Self::DeleteRoute { id: number } => ConfigChange::DeleteRoute(id(number)),
        }
    }
}

fn an_edit() -> impl Strategy<Value = Edit> {
    let from = || select(vec!["shop", "bank", "post"]);
    let to = || select(vec!["crm", "mail", "zoo"]);
    prop_oneof![
        4 => (1..4_u8, from(), 1..3_u64)
            .prop_map(|(id, name, window)| Edit::PutSource { id, name, window }),
        4 => (1..4_u8, to(), 1..3_u32)
            .prop_map(|(id, name, concurrency)| Edit::PutDestination { id, name, concurrency }),
        4 => (1..4_u8, from(), to()).prop_map(|(id, from, to)| Edit::PutRoute { id, from, to }),
        1 => (1..4_u8).prop_map(|id| Edit::DeleteSource { id }),
        1 => (1..4_u8).prop_map(|id| Edit::DeleteDestination { id }),
        1 => (1..4_u8).prop_map(|id| Edit::DeleteRoute { id }),
    ]
}

/// Whether the change can be made at all: names are unique, and a route has two ends.
fn is_possible(configuration: &Configuration, change: &ConfigChange) -> bool {
    fn free<I: PartialEq, S>(
        list: &[StoredObject<I, S>],
        id: I,
        wanted: &Name,
        name: impl Fn(&S) -> &Name,
    ) -> bool {
        list.iter().all(|stored| stored.id == id || name(&stored.spec) != wanted)
    }
    match change {
        ConfigChange::PutSource(id, spec) => {
            free(&configuration.sources, *id, &spec.name, |spec| &spec.name)
        }
        ConfigChange::PutDestination(id, spec) => {
            free(&configuration.destinations, *id, &spec.name, |spec| &spec.name)
        }
        ConfigChange::PutRoute(_, spec) => {
            configuration.sources.iter().any(|source| source.spec.name == spec.from)
                && configuration.destinations.iter().any(|end| end.spec.name == spec.to)
        }
        ConfigChange::DeleteSource(_)
        | ConfigChange::DeleteDestination(_)
        | ConfigChange::DeleteRoute(_) => true,
    }
}

/// What must be there after `changes`; nothing of them if one is impossible.
fn expected(
    before: &Configuration,
    changes: &[ConfigChange],
    now: Timestamp,
) -> Result<Configuration, ()> {
    let mut after = before.clone();
    for change in changes {
        if !is_possible(&after, change) {
            return Err(());
        }
        after.apply(std::slice::from_ref(change), now);
    }
    Ok(after)
}

async fn play(mut world: World, steps: Vec<Vec<Edit>>) -> TestCaseResult {
    let clear = vec![
        ConfigChange::DeleteSource(world.shop),
        ConfigChange::DeleteSource(world.bank),
        ConfigChange::DeleteDestination(world.crm),
        ConfigChange::DeleteDestination(world.mail),
    ];
    world.change(clear, world.now).await.unwrap();
    let mut configuration = Configuration::default();
    for edits in steps {
        let changes: Vec<ConfigChange> = edits.iter().map(|edit| edit.change()).collect();
        world.wait(Duration::from_secs(1));
        let expected = expected(&configuration, &changes, world.now);

        let made = world.change(changes, world.now).await;

        prop_assert_eq!(made.is_ok(), expected.is_ok(), "{:?}: {:?}", edits, made);
        configuration = expected.unwrap_or(configuration);
        prop_assert_eq!(&world.configuration().await.unwrap(), &configuration, "{:?}", edits);
    }
    world.reopen().await;
    prop_assert_eq!(world.configuration().await.unwrap(), configuration);
    Ok(())
}

pub fn random_changes_match_configuration_apply<H: Harness + 'static>(harness: impl Fn() -> H) {
    let steps = prop::collection::vec(prop::collection::vec(an_edit(), 1..5), 1..12);
    check(steps, |steps| async { play(World::new(harness()).await, steps).await });
}
