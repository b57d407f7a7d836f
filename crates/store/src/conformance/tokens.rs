//! API tokens: kept once, listed, removed; the last admin stays.

use std::time::Duration;

use surehook_core::{
    access::{ApiToken, Role, Session},
    ids::TokenId,
    store::RemoveTokenResult,
};

use super::World;

fn token(world: &World, number: u8, role: Role) -> ApiToken {
    ApiToken {
        id: TokenId::new(world.now, u128::from(number) << 100),
        hash: [number; 32],
        name: Some(format!("token {number}")),
        role,
        created_at: world.now,
        expires_at: None,
        session: None,
    }
}

pub async fn tokens_are_stored_with_all_fields_and_once_per_hash(mut world: World) {
    let first = token(&world, 1, Role::Admin);
    let second = ApiToken {
        name: None,
        expires_at: Some(world.now + Duration::from_secs(60)),
        ..token(&world, 2, Role::Viewer)
    };
    let again = ApiToken { id: TokenId::new(world.now, 3 << 100), ..second.clone() };
    for token in [&first, &second, &again] {
        world.add_token(token.clone()).await.unwrap();
    }

    world.reopen().await;

    assert_eq!(world.tokens().await.unwrap(), [first, second]);
}

pub async fn adding_a_known_token_updates_role_and_expiry(world: World) {
    let weak = ApiToken { expires_at: Some(world.now), ..token(&world, 1, Role::Viewer) };
    world.add_token(weak.clone()).await.unwrap();

    world.add_token(token(&world, 1, Role::Admin)).await.unwrap();

    let kept = world.tokens().await.unwrap();
    assert_eq!(kept, [ApiToken { role: Role::Admin, expires_at: None, ..weak }]);
}

pub async fn last_admin_token_cannot_be_removed(world: World) {
    let (admin, viewer) = (token(&world, 1, Role::Admin), token(&world, 2, Role::Viewer));
    let expired = ApiToken { expires_at: Some(world.now), ..token(&world, 3, Role::Admin) };
    for token in [&admin, &viewer, &expired] {
        world.add_token(token.clone()).await.unwrap();
    }
    let unknown = TokenId::new(world.now, 9 << 100);

    for (name, id, expected) in [
        ("unknown", unknown, RemoveTokenResult::NotFound),
        ("one that only looks", viewer.id, RemoveTokenResult::Removed),
        ("removed already", viewer.id, RemoveTokenResult::NotFound),
        ("the last that still opens", admin.id, RemoveTokenResult::LastAdmin),
        ("one that opens nothing", expired.id, RemoveTokenResult::Removed),
        ("the last of all", admin.id, RemoveTokenResult::LastAdmin),
    ] {
        assert_eq!(world.remove_token(id, world.now).await.unwrap(), expected, "case: {name}");
    }
    world.add_token(token(&world, 4, Role::Admin)).await.unwrap();
    assert_eq!(world.remove_token(admin.id, world.now).await.unwrap(), RemoveTokenResult::Removed);
}

/// A session of an admin, begun with a token or with a link.
fn session(world: &World, number: u8, begun_with: Option<TokenId>) -> ApiToken {
    ApiToken {
        expires_at: Some(world.now + Duration::from_secs(60)),
        session: Some(Session { begun_with }),
        ..token(world, number, Role::Admin)
    }
}

pub async fn removing_a_token_removes_its_sessions(mut world: World) {
    let (first, second) = (token(&world, 1, Role::Admin), token(&world, 2, Role::Admin));
    let of_first = session(&world, 3, Some(first.id));
    let of_second = session(&world, 4, Some(second.id));
    let by_link = session(&world, 5, None);
    for token in [&first, &second, &of_first, &of_second, &by_link] {
        world.add_token(token.clone()).await.unwrap();
    }

    assert_eq!(world.remove_token(first.id, world.now).await.unwrap(), RemoveTokenResult::Removed);
    world.reopen().await;

    assert_eq!(world.tokens().await.unwrap(), [second, of_second, by_link]);
}

pub async fn session_for_a_removed_token_is_rejected(world: World) {
    let (first, second) = (token(&world, 1, Role::Admin), token(&world, 2, Role::Admin));
    for token in [&first, &second] {
        assert!(world.add_token(token.clone()).await.unwrap());
    }
    world.remove_token(first.id, world.now).await.unwrap();

    assert!(!world.add_token(session(&world, 3, Some(first.id))).await.unwrap());
    assert_eq!(world.tokens().await.unwrap(), [second]);
}

pub async fn session_does_not_count_as_the_last_admin(world: World) {
    let admin = token(&world, 1, Role::Admin);
    let by_link = session(&world, 2, None);
    world.add_token(admin.clone()).await.unwrap();
    world.add_token(by_link.clone()).await.unwrap();

    assert_eq!(
        world.remove_token(admin.id, world.now).await.unwrap(),
        RemoveTokenResult::LastAdmin
    );
    assert_eq!(
        world.remove_token(by_link.id, world.now).await.unwrap(),
        RemoveTokenResult::Removed
    );
}

pub async fn expired_sessions_are_removed_when_a_session_is_added(mut world: World) {
    world.add_token(session(&world, 1, None)).await.unwrap();
    world.wait(Duration::from_secs(60));
    let next = session(&world, 2, None);

    world.add_token(next.clone()).await.unwrap();

    assert_eq!(world.tokens().await.unwrap(), [next]);
}
