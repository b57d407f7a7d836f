//! One-time login links: stored, taken once, and removed with their token.

use std::time::Duration;

use surehook_core::{
    access::{ApiToken, LinkCreator, Role, StoredLoginLink},
    store::LOGIN_LINKS_MAX,
};
use surehook_types::ids::TokenId;

use super::StoreFixture;

const LIFETIME: Duration = Duration::from_secs(900);

fn link(fixture: &StoreFixture, number: u8) -> StoredLoginLink {
    StoredLoginLink { hash: [number; 32], expires_at: fixture.now + LIFETIME, created_by: None }
}

async fn add(fixture: &StoreFixture, link: StoredLoginLink) {
    fixture.add_login_link(link, fixture.now).await.unwrap();
}

async fn take(fixture: &StoreFixture, number: u8) -> Option<StoredLoginLink> {
    fixture.take_login_link([number; 32], fixture.now).await.unwrap()
}

pub async fn login_link_works_once(mut fixture: StoreFixture) {
    let creator = LinkCreator {
        id: fixture.new_id(),
        expires_at: Some(fixture.now + Duration::from_secs(60)),
    };
    let created = StoredLoginLink { created_by: Some(creator), ..link(&fixture, 1) };
    add(&fixture, created).await;
    add(&fixture, link(&fixture, 2)).await;
    fixture.reopen().await;

    assert_eq!(take(&fixture, 3).await, None);
    let (one, other) = tokio::join!(take(&fixture, 1), take(&fixture, 1));
    assert_eq!([one, other].into_iter().flatten().collect::<Vec<_>>(), [created]);
    assert_eq!(take(&fixture, 2).await, Some(link(&fixture, 2)));
    add(&fixture, created).await;
    assert_eq!(take(&fixture, 1).await, Some(created), "it can be given back");
}

pub async fn expired_login_link_is_not_found(mut fixture: StoreFixture) {
    add(&fixture, link(&fixture, 1)).await;
    fixture.wait(LIFETIME);
    assert_eq!(take(&fixture, 1).await, None);
}

pub async fn login_links_of_a_removed_token_are_removed(fixture: StoreFixture) {
    let token = |number: u8| ApiToken {
        id: TokenId::new(fixture.now, u128::from(number) << 100),
        hash: [number; 32],
        name: None,
        role: Role::Admin,
        created_at: fixture.now,
        expires_at: None,
        namespaces: None,
        urls: None,
        session: None,
    };
    for number in [1, 2] {
        let creator = LinkCreator { id: token(number).id, expires_at: None };
        fixture.add_token(token(number)).await.unwrap();
        add(&fixture, StoredLoginLink { created_by: Some(creator), ..link(&fixture, number) })
            .await;
    }

    fixture.remove_token(token(1).id, fixture.now).await.unwrap();

    assert_eq!(take(&fixture, 1).await, None);
    assert!(take(&fixture, 2).await.is_some());
}

pub async fn oldest_login_links_are_removed_beyond_the_maximum(mut fixture: StoreFixture) {
    let many = u8::try_from(LOGIN_LINKS_MAX).unwrap() + 2;
    for number in 0..many {
        fixture.wait(Duration::from_millis(1));
        add(&fixture, link(&fixture, number)).await;
    }
    for (number, exists) in [(0, false), (1, false), (2, true), (many - 1, true)] {
        assert_eq!(take(&fixture, number).await.is_some(), exists, "link {number}");
    }
}
