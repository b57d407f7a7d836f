//! Idempotency keys: claimed once, with a stored result, and never swallowing a retry. The rules of a
//! claim have a suite of their own in `surehook-dedup`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use surehook_core::{
    idempotency::{
        ClaimContext, ClaimFilter, ClaimStep, ClaimStepResult, ClaimTotals, KEY_RETENTION,
        KeyLimit, KeyLimits, NamespaceCounts, StoredClaimStatus, api_key, service_key,
    },
    store::{PageRequest, ReplayResult},
};
use surehook_dedup::{
    Claim, ClaimGrant, ClaimKey, ClaimRequest, ClaimToken, ClaimUpdate, CompletionRequest,
    Fingerprint, ThreadRandom,
};

use super::StoreFixture;

const LEASE: Duration = Duration::from_secs(30);

fn context(fixture: &StoreFixture) -> ClaimContext {
    ClaimContext {
        as_of: fixture.now,
        counted_from: fixture.now,
        limits: KeyLimits::default(),
        rng: Arc::new(ThreadRandom),
    }
}

fn api(name: &str) -> ClaimKey {
    api_key(&[1; 32], name).unwrap()
}

fn orders(name: &str) -> ClaimKey {
    service_key("orders", name).unwrap()
}

/// A request of the service, or one of the API, whose leases have no length.
fn request(key: &ClaimKey, fingerprint: u8) -> ClaimRequest {
    let lease = if key.namespace() == "orders" { LEASE } else { Duration::ZERO };
    let fingerprint = Some(Fingerprint::from_bytes([fingerprint; 32]));
    ClaimRequest { key: key.clone(), fingerprint, lease, ttl: KEY_RETENTION }
}

async fn run(fixture: &StoreFixture, step: ClaimStep) -> ClaimStepResult {
    fixture.run_claim_steps(vec![step], context(fixture)).await.unwrap().remove(0)
}

async fn claim(fixture: &StoreFixture, key: &ClaimKey, fingerprint: u8) -> Claim {
    match run(fixture, ClaimStep::Claim(request(key, fingerprint))).await {
        ClaimStepResult::Claim(claim) => claim,
        other @ (ClaimStepResult::Update(_) | ClaimStepResult::Full(_)) => panic!("{other:?}"),
    }
}

async fn grant(fixture: &StoreFixture, key: &ClaimKey) -> ClaimGrant {
    match claim(fixture, key, 9).await {
        Claim::Claimed(grant) => grant,
        other @ (Claim::InProgress { .. } | Claim::Completed(_) | Claim::OtherFingerprint) => {
            panic!("{key} should be free: {other:?}")
        }
    }
}

fn completion(key: &ClaimKey, token: ClaimToken, result: &'static str) -> ClaimStep {
    let result = Bytes::from_static(result.as_bytes());
    ClaimStep::Complete(CompletionRequest { key: key.clone(), token, result, ttl: KEY_RETENTION })
}

async fn complete(fixture: &StoreFixture, key: &ClaimKey, token: ClaimToken, result: &'static str) {
    let done = run(fixture, completion(key, token, result)).await;
    assert_eq!(done, ClaimStepResult::Update(ClaimUpdate::Applied));
}

#[track_caller]
fn assert_completed(claim: &Claim, result: &str) {
    assert!(matches!(claim, Claim::Completed(done) if done.result == result), "{claim:?}");
}

pub async fn completed_key_returns_its_result_across_a_restart(mut fixture: StoreFixture) {
    for key in [api("a"), orders("a")] {
        let token = grant(&fixture, &key).await.token;
        complete(&fixture, &key, token, "done").await;
    }
    for _restarted in [false, true] {
        for key in [api("a"), orders("a")] {
            assert_completed(&claim(&fixture, &key, 9).await, "done");
            assert_eq!(claim(&fixture, &key, 8).await, Claim::OtherFingerprint);
        }
        fixture.reopen().await;
    }
}

pub async fn unfinished_api_request_is_resumed_at_once_as_the_same_operation(
    mut fixture: StoreFixture,
) {
    let first = grant(&fixture, &api("a")).await;
    for _restarted in [false, true] {
        let again = grant(&fixture, &api("a")).await;
        assert!(again.is_resumed);
        assert_eq!(again.operation, first.operation, "the same time and seed give the same ids");
        assert_eq!(claim(&fixture, &api("a"), 8).await, Claim::OtherFingerprint);
        fixture.reopen().await;
    }
    // Also by a clock that went back.
    let step = ClaimStep::Claim(request(&api("a"), 9));
    let as_of = fixture.now - Duration::from_secs(60);
    let back = ClaimContext { as_of, counted_from: as_of, ..context(&fixture) };
    let again = fixture.run_claim_steps(vec![step], back).await.unwrap().remove(0);
    let resumed =
        matches!(again, ClaimStepResult::Claim(Claim::Claimed(grant)) if grant.is_resumed);
    assert!(resumed, "{again:?}");
}

pub async fn lease_of_the_service_outlives_a_restart(mut fixture: StoreFixture) {
    let first = grant(&fixture, &orders("a")).await;
    fixture.reopen().await;
    let retry_after = LEASE;
    assert_eq!(claim(&fixture, &orders("a"), 9).await, Claim::InProgress { retry_after });
    fixture.wait(LEASE);
    let second = grant(&fixture, &orders("a")).await;
    assert!(second.is_resumed && second.fence > first.fence);
    let late = run(&fixture, completion(&orders("a"), first.token, "late")).await;
    assert_eq!(late, ClaimStepResult::Update(ClaimUpdate::StaleToken));
    complete(&fixture, &orders("a"), second.token, "done").await;
}

pub async fn same_key_in_another_namespace_is_a_new_claim(fixture: StoreFixture) {
    let token = grant(&fixture, &api("a")).await.token;
    complete(&fixture, &api("a"), token, "mine").await;
    grant(&fixture, &api_key(&[2; 32], "a").unwrap()).await;
    grant(&fixture, &orders("a")).await;
}

pub async fn released_api_key_is_forgotten_unless_it_has_a_response(fixture: StoreFixture) {
    let first = grant(&fixture, &api("a")).await;
    let release = |token| ClaimStep::Release { key: api("a"), token: Some(token) };
    let released = run(&fixture, release(first.token)).await;
    assert_eq!(released, ClaimStepResult::Update(ClaimUpdate::Applied));
    let as_of = fixture.now;
    assert_eq!(fixture.find_claim(api("a"), as_of).await.unwrap(), None);

    let second = grant(&fixture, &api("a")).await;
    assert!(!second.is_resumed);
    complete(&fixture, &api("a"), second.token, "done").await;
    let refused = run(&fixture, release(second.token)).await;
    assert_eq!(refused, ClaimStepResult::Update(ClaimUpdate::StaleToken));
    assert_completed(&claim(&fixture, &api("a"), 9).await, "done");
}

pub async fn release_without_a_token_frees_what_is_unfinished(mut fixture: StoreFixture) {
    let release = ClaimStep::Release { key: orders("a"), token: None };
    let stale = ClaimStepResult::Update(ClaimUpdate::StaleToken);
    assert_eq!(run(&fixture, release.clone()).await, stale, "there is no such key");
    for is_abandoned in [false, true] {
        let held = grant(&fixture, &orders("a")).await;
        if is_abandoned {
            fixture.wait(LEASE);
        }
        let applied = ClaimStepResult::Update(ClaimUpdate::Applied);
        assert_eq!(run(&fixture, release.clone()).await, applied);
        assert_eq!(run(&fixture, completion(&orders("a"), held.token, "late")).await, stale);
    }
    let token = grant(&fixture, &orders("a")).await.token;
    complete(&fixture, &orders("a"), token, "done").await;
    assert_eq!(run(&fixture, release).await, stale, "a result stays");
}

pub async fn key_can_be_claimed_again_after_its_ttl(mut fixture: StoreFixture) {
    let first = grant(&fixture, &orders("a")).await;
    complete(&fixture, &orders("a"), first.token, "done").await;
    fixture.wait(KEY_RETENTION - Duration::from_millis(1));
    assert_completed(&claim(&fixture, &orders("a"), 9).await, "done");
    fixture.wait(Duration::from_millis(1));
    let second = grant(&fixture, &orders("a")).await;
    assert_ne!(second.operation, first.operation);
}

pub async fn key_lives_from_the_later_time_and_ends_by_the_earlier_one(fixture: StoreFixture) {
    let day = Duration::from_secs(24 * 3600);
    let (earlier, later) = (fixture.now, fixture.now + day);
    let doubtful = ClaimContext { counted_from: later, ..context(&fixture) };
    let step = ClaimStep::Claim(request(&orders("a"), 9));
    let claimed = fixture.run_claim_steps(vec![step], doubtful.clone()).await.unwrap().remove(0);
    let ClaimStepResult::Claim(Claim::Claimed(grant)) = claimed else { panic!("{claimed:?}") };
    let step = completion(&orders("a"), grant.token, "done");
    fixture.run_claim_steps(vec![step], doubtful).await.unwrap();

    let detail = fixture.find_claim(orders("a"), earlier).await.unwrap().unwrap();
    assert_eq!(detail.row.expires_at, later + KEY_RETENTION);
    let end = later + KEY_RETENTION;
    assert_eq!(fixture.prune_claims(end - Duration::from_millis(1)).await.unwrap(), 0);
    assert_eq!(fixture.prune_claims(end).await.unwrap(), 1);
}

pub async fn expired_keys_are_pruned_in_slices(mut fixture: StoreFixture) {
    for batch in 0..4 {
        let key = |number| orders(&format!("k{batch}-{number}"));
        let steps = (0..100).map(|number| ClaimStep::Claim(request(&key(number), 9))).collect();
        fixture.run_claim_steps(steps, context(&fixture)).await.unwrap();
    }
    fixture.wait(Duration::from_secs(1));
    let young = grant(&fixture, &orders("young")).await;
    let border = fixture.now + KEY_RETENTION - Duration::from_secs(1);
    let mut slices = Vec::new();
    loop {
        match fixture.prune_claims(border).await.unwrap() {
            0 => break,
            slice => slices.push(slice),
        }
    }
    assert_eq!(slices.iter().sum::<usize>(), 400);
    assert!(slices.len() > 1, "a slice is bounded, however much there is");
    complete(&fixture, &orders("young"), young.token, "done").await;
}

/// Keys in every state; returns the grant of the one that is held.
async fn fill(fixture: &mut StoreFixture) -> ClaimGrant {
    grant(fixture, &api("hidden")).await;
    grant(fixture, &orders("abandoned")).await;
    fixture.wait(LEASE);
    let done = grant(fixture, &orders("completed")).await;
    complete(fixture, &orders("completed"), done.token, "12345").await;
    let held = grant(fixture, &orders("held")).await;
    grant(fixture, &orders("released")).await;
    run(fixture, ClaimStep::Release { key: orders("released"), token: None }).await;
    grant(fixture, &service_key("mail", "a").unwrap()).await;
    fixture.reopen().await;
    held
}

pub async fn claims_are_counted_by_namespace(mut fixture: StoreFixture) {
    fill(&mut fixture).await;
    let now = fixture.now;
    let expected = [
        NamespaceCounts {
            namespace: "mail".to_owned(),
            abandoned: 1,
            ..NamespaceCounts::default()
        },
        NamespaceCounts {
            namespace: "orders".to_owned(),
            in_progress: 1,
            abandoned: 1,
            completed: 1,
            released: 1,
            result_bytes: 5,
        },
    ];
    assert_eq!(fixture.count_claims(now).await.unwrap(), expected);
    let totals = ClaimTotals { keys: 5, in_progress: 1, api_keys: 1 };
    assert_eq!(fixture.count_all_claims(now).await.unwrap(), totals);

    while fixture.prune_claims(now + KEY_RETENTION).await.unwrap() > 0 {}
    assert_eq!(fixture.count_claims(now).await.unwrap(), []);
    assert_eq!(fixture.count_all_claims(now).await.unwrap(), ClaimTotals::default());
}

pub async fn claims_are_listed_by_namespace_and_key(mut fixture: StoreFixture) {
    let held = fill(&mut fixture).await;
    let now = fixture.now;
    let mut names = Vec::new();
    let mut page = PageRequest { after: None, limit: 2 };
    loop {
        let rows = fixture.list_claims(ClaimFilter::All, page.clone(), now).await.unwrap();
        names.extend(rows.iter().map(|row| row.key.to_string()));
        match rows.last() {
            Some(last) if rows.len() == page.limit => page.after = Some(last.key.clone()),
            _ => break,
        }
    }
    let expected =
        ["mail/a", "orders/abandoned", "orders/completed", "orders/held", "orders/released"];
    assert_eq!(names, expected);
    let page = |after: Option<ClaimKey>| PageRequest { after, limit: 9 };
    let with_prefix = |prefix: &str| ClaimFilter::Namespace {
        namespace: "orders".to_owned(),
        key_prefix: prefix.to_owned(),
    };
    for (prefix, after, expected) in [
        ("", None, &["abandoned", "completed", "held", "released"][..]),
        ("h", None, &["held"]),
        ("held", Some("completed"), &["held"]),
        ("a", Some("completed"), &[]),
        ("x", None, &[]),
    ] {
        let page = page(after.map(orders));
        let rows = fixture.list_claims(with_prefix(prefix), page, now).await.unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row.key.name()).collect();
        assert_eq!(names, expected, "case: {prefix}");
    }
    let page = page(Some(orders("completed")));
    let rows = fixture.list_claims(with_prefix(""), page, now).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.key.name()).collect::<Vec<_>>(), ["held", "released"]);
    assert_eq!(rows[0].status, StoredClaimStatus::InProgress { lease_until: now + LEASE });
    assert_eq!((rows[0].fence, rows[0].operation), (held.fence, held.operation));
    let detail = fixture.find_claim(orders("completed"), now).await.unwrap().unwrap();
    assert_eq!(detail.result.as_deref(), Some(&b"12345"[..]));
    let status = StoredClaimStatus::Completed { completed_at: now, result_bytes: 5 };
    assert_eq!(detail.row.status, status);
}

pub async fn new_keys_beyond_a_limit_are_refused_and_known_ones_are_not(fixture: StoreFixture) {
    let limited = |per_namespace, total| ClaimContext {
        limits: KeyLimits { per_namespace, total },
        ..context(&fixture)
    };
    let try_claim = async |key: &ClaimKey, context| {
        let step = ClaimStep::Claim(request(key, 9));
        fixture.run_claim_steps(vec![step], context).await.unwrap().remove(0)
    };
    let is_claimed =
        |result: &ClaimStepResult| matches!(result, ClaimStepResult::Claim(Claim::Claimed(_)));
    let other = service_key("mail", "a").unwrap();
    assert!(is_claimed(&try_claim(&orders("a"), limited(1, 2)).await));
    let full = ClaimStepResult::Full(KeyLimit::PerNamespace(1));
    assert_eq!(try_claim(&orders("b"), limited(1, 2)).await, full);
    assert!(is_claimed(&try_claim(&other, limited(1, 2)).await));
    let full = ClaimStepResult::Full(KeyLimit::Total(2));
    assert_eq!(try_claim(&service_key("third", "a").unwrap(), limited(1, 2)).await, full);
    assert!(is_claimed(&try_claim(&api("a"), limited(1, 2)).await), "API requests have their own");

    let known = try_claim(&orders("a"), limited(1, 2)).await;
    assert!(matches!(known, ClaimStepResult::Claim(Claim::InProgress { .. })), "{known:?}");
}

pub async fn repeated_replay_with_the_same_id_returns_the_same_result(mut fixture: StoreFixture) {
    let event = fixture.accept(fixture.new_event()).await;
    fixture.finish_due(fixture.crm, surehook_core::store::NextStep::Succeeded).await;
    let old = fixture.event_detail(event).await.deliveries[0].id;
    let new = fixture.new_id();
    let created = fixture.replay(old, new, fixture.now).await.unwrap();
    assert_eq!(created, ReplayResult::Created { delivery: new, destination: fixture.crm });

    fixture.wait(Duration::from_secs(1));
    assert_eq!(fixture.replay(old, new, fixture.now).await.unwrap(), created);
    assert_eq!(fixture.event_detail(event).await.deliveries.len(), 2);
    let other = fixture.replay(old, fixture.new_id(), fixture.now).await.unwrap();
    assert!(matches!(other, ReplayResult::TooSoon { .. }), "{other:?}");
}
