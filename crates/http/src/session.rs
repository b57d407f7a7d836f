//! Sessions of the dashboard: a browser that has signed in has a token of its own, which ends with
//! the one it was begun with (docs/decisions/0051).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use data_encoding::HEXLOWER;
use surehook_core::{
    access::{ApiToken, Role, Session, TokenHash},
    ids::TokenId,
    rng::{Rng, new_id},
    time::Timestamp,
};

use crate::{App, api::tokens::carry_out, auth::hash_token, problem::Problem};

/// After which time somebody has to sign in again.
const SESSION_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// For how long a link that opens once can be used.
pub(crate) const LINK_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Links that nobody has used; more than these are not needed by anybody.
const LINKS_MAX: usize = 100;

/// A link that nobody has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    until: Timestamp,
    made_by: Option<Maker>,
}

/// With which token a link was made: what it opens ends with that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Maker {
    id: TokenId,
    ends: Option<Timestamp>,
}

impl Maker {
    /// A session stands for the token that it was begun with, if there is one.
    fn of(token: &ApiToken) -> Self {
        let id = token.session.and_then(|session| session.begun_with).unwrap_or(token.id);
        Self { id, ends: token.expires_at }
    }
}

/// The codes of links that open once. They end with the process: it makes a new one when it starts.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<HashMap<TokenHash, Link>>);

impl Links {
    fn open(&self) -> MutexGuard<'_, HashMap<TokenHash, Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A code that opens once, until its time.
    fn make(
        &self,
        chance: &dyn Rng,
        now: Timestamp,
        made_by: Option<Maker>,
    ) -> (String, Timestamp) {
        let code = secret("shl_", chance);
        let until = now + LINK_LIFE;
        let mut open = self.open();
        open.retain(|_, link| link.until > now);
        if open.len() >= LINKS_MAX {
            let oldest = open.iter().min_by_key(|(_, link)| link.until).map(|(hash, _)| *hash);
            oldest.and_then(|hash| open.remove(&hash));
        }
        open.insert(hash_token(&code), Link { until, made_by });
        (code, until)
    }

    /// What a code opens, if it does; it never does again.
    fn spend(&self, code: &str, now: Timestamp) -> Option<Link> {
        self.open().remove(&hash_token(code)).filter(|link| link.until > now)
    }

    /// A code that opened nothing after all.
    fn put_back(&self, code: &str, link: Link) {
        self.open().insert(hash_token(code), link);
    }

    /// Closes what was made with a token that is taken away.
    pub(crate) fn forget(&self, token: TokenId) {
        self.open().retain(|_, link| link.made_by.is_none_or(|maker| maker.id != token));
    }
}

fn secret(prefix: &str, chance: &dyn Rng) -> String {
    let bytes = [chance.bits().to_be_bytes(), chance.bits().to_be_bytes()].concat();
    format!("{prefix}{}", HEXLOWER.encode(&bytes))
}

/// A session that has begun: what the browser keeps, and for how long.
pub(crate) struct Begun {
    pub(crate) secret: String,
    pub(crate) life: Duration,
}

impl App {
    /// Makes a link that signs in an admin, once: the path of it, and until when. Nobody's token
    /// makes it.
    pub fn login_link(&self) -> (String, Timestamp) {
        self.link(None)
    }

    /// The same, made with a token: what it opens ends with that token.
    pub(crate) fn login_link_of(&self, token: Option<&ApiToken>) -> (String, Timestamp) {
        self.link(token.map(Maker::of))
    }

    fn link(&self, made_by: Option<Maker>) -> (String, Timestamp) {
        let now = self.engine.clock().now();
        let (code, until) = self.links.make(self.engine.chance(), now, made_by);
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
        self.begin(token.role, name, Some(token.id), token.expires_at).await
    }

    /// Begins a session with the code of a link; `None` if it opens nothing.
    pub(crate) async fn begin_with_link(
        self: &Arc<Self>,
        code: &str,
    ) -> Result<Option<Begun>, Problem> {
        let Some(link) = self.links.spend(code, self.engine.clock().now()) else {
            return Ok(None);
        };
        let name = Some("one-time link".to_owned());
        let (with, ends) = (link.made_by.map(|maker| maker.id), link.made_by.and_then(|m| m.ends));
        let begun = self.begin(Role::Admin, name, with, ends).await;
        if begun.is_err() {
            self.links.put_back(code, link);
            // It may have been taken away in between.
            if let Some(with) = with
                && !self.tokens.knows(with)
            {
                self.links.forget(with);
            }
        }
        begun
    }

    async fn begin(
        self: &Arc<Self>,
        role: Role,
        name: Option<String>,
        begun_with: Option<TokenId>,
        ends: Option<Timestamp>,
    ) -> Result<Option<Begun>, Problem> {
        let now = self.engine.clock().now();
        let secret = secret("shs_", self.engine.chance());
        let until = ends.map_or(now + SESSION_LIFE, |ends| ends.min(now + SESSION_LIFE));
        let token = ApiToken {
            id: new_id(self.engine.chance(), now),
            hash: hash_token(&secret),
            name,
            role,
            created_at: now,
            expires_at: Some(until),
            session: Some(Session { begun_with }),
        };
        let (app, id) = (Arc::clone(self), token.id);
        let is_kept = carry_out(async move {
            Ok(app.engine.store().add_token(token.clone()).await? && app.tokens.add(token))
        });
        if !is_kept.await? {
            return Ok(None);
        }
        let with = begun_with.map(|with| with.to_string()).unwrap_or_default();
        tracing::info!(session = %id, %role, begun_with = with, "somebody signed in to the dashboard");
        Ok(Some(Begun { secret, life: until.since(now) }))
    }
}

#[cfg(test)]
mod tests {
    use surehook_engine::system::SystemRng;

    use super::*;

    #[test]
    fn a_link_opens_once_and_not_after_its_time() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let links = Links::default();
        let (first, until) = links.make(&SystemRng, now, None);
        let (second, _) = links.make(&SystemRng, now, None);

        assert_eq!(links.spend("shl_guessed", now), None);
        let link = links.spend(&first, now).unwrap();
        assert_eq!(links.spend(&first, now), None, "it opens once");
        assert_eq!(links.spend(&second, until), None, "its time has passed");

        links.put_back(&first, link);
        assert_eq!(links.spend(&first, now), Some(link), "nothing came of it the first time");
    }

    #[test]
    fn a_link_ends_with_the_token_that_made_it() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let links = Links::default();
        let id = |n: u128| TokenId::new(now, n << 100);
        let maker = |n| Some(Maker { id: id(n), ends: None });
        let made = [None, maker(1), maker(2)].map(|by| links.make(&SystemRng, now, by).0);

        links.forget(id(1));

        let opens = made.map(|code| links.spend(&code, now).is_some());
        assert_eq!(opens, [true, false, true]);
    }

    #[test]
    fn only_so_many_links_are_open() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let links = Links::default();
        for n in 0..2 * u64::try_from(LINKS_MAX).unwrap() {
            links.make(&SystemRng, now + Duration::from_millis(n), None);
        }
        assert_eq!(links.0.lock().unwrap().len(), LINKS_MAX);
    }
}
