//! Sessions of the dashboard: a browser that has signed in has a token of its own, which ends with
//! the one it was begun with (docs/decisions/0051).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use data_encoding::HEXLOWER;
use surehook_core::{
    access::{Role, Session, Token, TokenHash},
    chance::{Chance, new_id},
    ids::TokenId,
    time::Timestamp,
};

use crate::{App, api::tokens::carry_out, auth::hash_token, problem::Problem};

/// After which time somebody has to sign in again.
const SESSION_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// For how long a link that opens once can be used.
pub(crate) const LINK_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Links that nobody has used; more than these are not needed by anybody.
const LINKS_MAX: usize = 100;

/// The codes of links that open once. They end with the process: it makes a new one when it starts.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<HashMap<TokenHash, Timestamp>>);

impl Links {
    /// A code that opens once, until its time.
    fn make(&self, chance: &dyn Chance, now: Timestamp) -> (String, Timestamp) {
        let code = secret("shl_", chance);
        let until = now + LINK_LIFE;
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, until| *until > now);
        if open.len() >= LINKS_MAX {
            let oldest = open.iter().min_by_key(|(_, until)| **until).map(|(hash, _)| *hash);
            oldest.and_then(|hash| open.remove(&hash));
        }
        open.insert(hash_token(&code), until);
        (code, until)
    }

    /// Whether a code opens; it never does again.
    fn spend(&self, code: &str, now: Timestamp) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&hash_token(code)).is_some_and(|until| until > now)
    }
}

fn secret(prefix: &str, chance: &dyn Chance) -> String {
    let bytes = [chance.bits().to_be_bytes(), chance.bits().to_be_bytes()].concat();
    format!("{prefix}{}", HEXLOWER.encode(&bytes))
}

/// A session that has begun: what the browser keeps, and for how long.
pub(crate) struct Begun {
    pub(crate) secret: String,
    pub(crate) life: Duration,
}

impl App {
    /// Makes a link that signs in an admin, once: the path of it, and until when.
    pub fn login_link(&self) -> (String, Timestamp) {
        let (code, until) = self.links.make(self.engine.chance(), self.engine.clock().now());
        (format!("/login?code={code}"), until)
    }

    /// Begins a session with a token of the API; `None` if it opens nothing.
    pub(crate) async fn begin_with_token(
        self: &Arc<Self>,
        token: &str,
    ) -> Result<Option<Begun>, Problem> {
        let Ok(token) = self.tokens.find(token, self.engine.clock().now()) else {
            return Ok(None);
        };
        let name = token.name.clone();
        self.begin(token.role, name, Some(token.id), token.expires_at).await.map(Some)
    }

    /// Begins a session with the code of a link; `None` if it opens nothing.
    pub(crate) async fn begin_with_link(
        self: &Arc<Self>,
        code: &str,
    ) -> Result<Option<Begun>, Problem> {
        if !self.links.spend(code, self.engine.clock().now()) {
            return Ok(None);
        }
        let name = Some("one-time link".to_owned());
        self.begin(Role::Admin, name, None, None).await.map(Some)
    }

    async fn begin(
        self: &Arc<Self>,
        role: Role,
        name: Option<String>,
        begun_with: Option<TokenId>,
        ends: Option<Timestamp>,
    ) -> Result<Begun, Problem> {
        let now = self.engine.clock().now();
        let secret = secret("shs_", self.engine.chance());
        let until = ends.map_or(now + SESSION_LIFE, |ends| ends.min(now + SESSION_LIFE));
        let token = Token {
            id: new_id(self.engine.chance(), now),
            hash: hash_token(&secret),
            name,
            role,
            created_at: now,
            expires_at: Some(until),
            session: Some(Session { begun_with }),
        };
        let (app, id) = (Arc::clone(self), token.id);
        carry_out(async move {
            app.engine.store().add_token(token.clone()).await?;
            app.tokens.add(token);
            Ok(())
        })
        .await?;
        tracing::info!(session = %id, role = %role, "somebody signed in to the dashboard");
        Ok(Begun { secret, life: until.since(now) })
    }
}

#[cfg(test)]
mod tests {
    use surehook_engine::system::SystemChance;

    use super::*;

    #[test]
    fn a_link_opens_once_and_not_after_its_time() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let links = Links::default();
        let (first, until) = links.make(&SystemChance, now);
        let (second, _) = links.make(&SystemChance, now);

        assert!(!links.spend("shl_guessed", now));
        assert!(links.spend(&first, now));
        assert!(!links.spend(&first, now), "it opens once");
        assert!(!links.spend(&second, until), "its time has passed");
    }

    #[test]
    fn only_so_many_links_are_open() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let links = Links::default();
        for n in 0..2 * u64::try_from(LINKS_MAX).unwrap() {
            links.make(&SystemChance, now + Duration::from_millis(n));
        }
        assert_eq!(links.0.lock().unwrap().len(), LINKS_MAX);
    }
}
