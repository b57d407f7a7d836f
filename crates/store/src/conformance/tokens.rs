//! API tokens: kept once, listed, removed; the last admin stays.

use std::time::Duration;

use surehook_core::{
    access::{Role, Token},
    ids::TokenId,
    store::TokenRemoved,
};

use super::World;

fn token(world: &World, number: u8, role: Role) -> Token {
    Token {
        id: TokenId::new(world.now, u128::from(number) << 100),
        hash: [number; 32],
        name: Some(format!("token {number}")),
        role,
        created_at: world.now,
        expires_at: None,
    }
}

pub async fn tokens_are_kept_whole_and_once(mut world: World) {
    let first = token(&world, 1, Role::Admin);
    let second = Token {
        name: None,
        expires_at: Some(world.now + Duration::from_secs(60)),
        ..token(&world, 2, Role::Viewer)
    };
    let again = Token { id: TokenId::new(world.now, 3 << 100), ..second.clone() };
    for token in [&first, &second, &again] {
        world.add_token(token.clone()).await.unwrap();
    }

    world.reopen().await;

    assert_eq!(world.tokens().await.unwrap(), [first, second]);
}

pub async fn a_token_given_again_takes_on_its_role(world: World) {
    let weak = Token { expires_at: Some(world.now), ..token(&world, 1, Role::Viewer) };
    world.add_token(weak.clone()).await.unwrap();

    world.add_token(token(&world, 1, Role::Admin)).await.unwrap();

    let kept = world.tokens().await.unwrap();
    assert_eq!(kept, [Token { role: Role::Admin, expires_at: None, ..weak }]);
}

pub async fn a_token_is_removed_unless_it_is_the_last_admin(world: World) {
    let (admin, viewer) = (token(&world, 1, Role::Admin), token(&world, 2, Role::Viewer));
    let expired = Token { expires_at: Some(world.now), ..token(&world, 3, Role::Admin) };
    for token in [&admin, &viewer, &expired] {
        world.add_token(token.clone()).await.unwrap();
    }
    let unknown = TokenId::new(world.now, 9 << 100);

    for (name, id, expected) in [
        ("unknown", unknown, TokenRemoved::NotFound),
        ("one that only looks", viewer.id, TokenRemoved::Removed),
        ("removed already", viewer.id, TokenRemoved::NotFound),
        ("the last that still opens", admin.id, TokenRemoved::LastAdmin),
        ("one that opens nothing", expired.id, TokenRemoved::Removed),
        ("the last of all", admin.id, TokenRemoved::LastAdmin),
    ] {
        assert_eq!(world.remove_token(id, world.now).await.unwrap(), expected, "case: {name}");
    }
    world.add_token(token(&world, 4, Role::Admin)).await.unwrap();
    assert_eq!(world.remove_token(admin.id, world.now).await.unwrap(), TokenRemoved::Removed);
}
