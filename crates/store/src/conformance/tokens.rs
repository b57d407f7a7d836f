//! API tokens and sessions: added, listed and removed; the last admin token stays.

use std::time::Duration;

use surehook_core::{
    access::{ApiToken, Role, Session},
    store::{InitialTokenResult, RemoveTokenResult},
};
use surehook_types::ids::TokenId;

use super::StoreFixture;

fn token(fixture: &StoreFixture, number: u8, role: Role) -> ApiToken {
    ApiToken {
        id: TokenId::new(fixture.now, u128::from(number) << 100),
        hash: [number; 32],
        name: Some(format!("token {number}")),
        role,
        created_at: fixture.now,
        expires_at: None,
        namespaces: None,
        urls: None,
        session: None,
    }
}

pub async fn tokens_are_stored_with_all_fields_and_once_per_hash(mut fixture: StoreFixture) {
    let first = token(&fixture, 1, Role::Admin);
    let second = ApiToken {
        name: None,
        expires_at: Some(fixture.now + Duration::from_secs(60)),
        namespaces: Some(["orders".to_owned(), "mail".to_owned()].into()),
        urls: Some(["https://*.app.example/*".parse().unwrap()].into()),
        ..token(&fixture, 2, Role::Viewer)
    };
    let again = ApiToken { id: TokenId::new(fixture.now, 3 << 100), ..second.clone() };
    for token in [&first, &second, &again] {
        fixture.add_token(token.clone()).await.unwrap();
    }

    fixture.reopen().await;

    assert_eq!(fixture.list_tokens().await.unwrap(), [first, second]);
}

pub async fn adding_a_known_token_updates_role_and_expiry(fixture: StoreFixture) {
    let viewer = ApiToken { expires_at: Some(fixture.now), ..token(&fixture, 1, Role::Viewer) };
    fixture.add_token(viewer.clone()).await.unwrap();

    fixture.add_token(token(&fixture, 1, Role::Admin)).await.unwrap();

    let stored = fixture.list_tokens().await.unwrap();
    assert_eq!(stored, [ApiToken { role: Role::Admin, expires_at: None, ..viewer }]);
}

pub async fn one_of_concurrent_starts_stores_the_first_token(fixture: StoreFixture) {
    let expired = ApiToken { expires_at: Some(fixture.now), ..token(&fixture, 9, Role::Admin) };
    let start = |number| fixture.add_initial_token(token(&fixture, number, Role::Admin), true);
    let results = tokio::join!(start(1), start(2), start(3));
    let mut results = [results.0.unwrap(), results.1.unwrap(), results.2.unwrap()];
    results.sort_by_key(|result| *result != InitialTokenResult::First);
    assert_eq!(
        results,
        [InitialTokenResult::First, InitialTokenResult::NotNeeded, InitialTokenResult::NotNeeded]
    );
    let stored = fixture.list_tokens().await.unwrap();
    let [first] = &stored[..] else { panic!("one token: {stored:?}") };

    // A chosen token is stored beside valid ones.
    let chosen = token(&fixture, 4, Role::Admin);
    let result = fixture.add_initial_token(chosen.clone(), false).await.unwrap();
    assert_eq!(result, InitialTokenResult::Stored);

    // One that has expired does not count.
    fixture.add_token(expired.clone()).await.unwrap();
    for old in [first, &chosen] {
        fixture.add_token(ApiToken { expires_at: Some(fixture.now), ..old.clone() }).await.unwrap();
    }
    let result = fixture.add_initial_token(token(&fixture, 5, Role::Admin), true).await.unwrap();
    assert_eq!(result, InitialTokenResult::Stored);
}

pub async fn last_admin_token_cannot_be_removed(fixture: StoreFixture) {
    let (admin, viewer) = (token(&fixture, 1, Role::Admin), token(&fixture, 2, Role::Viewer));
    let expired = ApiToken { expires_at: Some(fixture.now), ..token(&fixture, 3, Role::Admin) };
    for token in [&admin, &viewer, &expired] {
        fixture.add_token(token.clone()).await.unwrap();
    }
    let unknown = TokenId::new(fixture.now, 9 << 100);

    for (name, id, expected) in [
        ("unknown", unknown, RemoveTokenResult::NotFound),
        ("viewer", viewer.id, RemoveTokenResult::Removed),
        ("removed already", viewer.id, RemoveTokenResult::NotFound),
        ("last valid admin", admin.id, RemoveTokenResult::LastAdmin),
        ("expired admin", expired.id, RemoveTokenResult::Removed),
        ("last token", admin.id, RemoveTokenResult::LastAdmin),
    ] {
        assert_eq!(fixture.remove_token(id, fixture.now).await.unwrap(), expected, "case: {name}");
    }
    fixture.add_token(token(&fixture, 4, Role::Admin)).await.unwrap();
    assert_eq!(
        fixture.remove_token(admin.id, fixture.now).await.unwrap(),
        RemoveTokenResult::Removed
    );
}

/// A session of an admin, started with a token or with a sign-in link.
fn session(fixture: &StoreFixture, number: u8, sign_in_token: Option<TokenId>) -> ApiToken {
    ApiToken {
        expires_at: Some(fixture.now + Duration::from_secs(60)),
        session: Some(Session { sign_in_token }),
        ..token(fixture, number, Role::Admin)
    }
}

pub async fn removing_a_token_removes_its_sessions(mut fixture: StoreFixture) {
    let (first, second) = (token(&fixture, 1, Role::Admin), token(&fixture, 2, Role::Admin));
    let of_first = session(&fixture, 3, Some(first.id));
    let of_second = session(&fixture, 4, Some(second.id));
    let by_link = session(&fixture, 5, None);
    for token in [&first, &second, &of_first, &of_second, &by_link] {
        fixture.add_token(token.clone()).await.unwrap();
    }

    assert_eq!(
        fixture.remove_token(first.id, fixture.now).await.unwrap(),
        RemoveTokenResult::Removed
    );
    fixture.reopen().await;

    assert_eq!(fixture.list_tokens().await.unwrap(), [second, of_second, by_link]);
}

pub async fn session_for_a_removed_token_is_rejected(fixture: StoreFixture) {
    let (first, second) = (token(&fixture, 1, Role::Admin), token(&fixture, 2, Role::Admin));
    for token in [&first, &second] {
        assert!(fixture.add_token(token.clone()).await.unwrap());
    }
    fixture.remove_token(first.id, fixture.now).await.unwrap();

    assert!(!fixture.add_token(session(&fixture, 3, Some(first.id))).await.unwrap());
    assert_eq!(fixture.list_tokens().await.unwrap(), [second]);
}

pub async fn session_does_not_count_as_the_last_admin(fixture: StoreFixture) {
    let admin = token(&fixture, 1, Role::Admin);
    let by_link = session(&fixture, 2, None);
    fixture.add_token(admin.clone()).await.unwrap();
    fixture.add_token(by_link.clone()).await.unwrap();

    assert_eq!(
        fixture.remove_token(admin.id, fixture.now).await.unwrap(),
        RemoveTokenResult::LastAdmin
    );
    assert_eq!(
        fixture.remove_token(by_link.id, fixture.now).await.unwrap(),
        RemoveTokenResult::Removed
    );
}

pub async fn expired_sessions_are_removed_when_a_session_is_added(mut fixture: StoreFixture) {
    fixture.add_token(session(&fixture, 1, None)).await.unwrap();
    fixture.wait(Duration::from_secs(60));
    let next = session(&fixture, 2, None);

    fixture.add_token(next.clone()).await.unwrap();

    assert_eq!(fixture.list_tokens().await.unwrap(), [next]);
}

pub async fn extended_session_keeps_its_new_expiry_and_a_removed_one_stays_removed(
    mut fixture: StoreFixture,
) {
    let (open, closed) = (session(&fixture, 1, None), session(&fixture, 2, None));
    for session in [&open, &closed] {
        fixture.add_token(session.clone()).await.unwrap();
    }
    let until = fixture.now + Duration::from_secs(3600);
    fixture.remove_token(closed.id, fixture.now).await.unwrap();

    for session in [&open, &closed] {
        fixture.extend_session(session.id, until).await.unwrap();
    }

    fixture.reopen().await;
    let expected = ApiToken { expires_at: Some(until), ..open };
    assert_eq!(fixture.list_tokens().await.unwrap(), [expected]);
}
