//! An event as the pages of sources and routes name it.

use serde::Deserialize;

use crate::{
    client::{Address, List, Trouble},
    show::without_phones,
    visitor::Visitor,
};

#[derive(Deserialize)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) kind: Option<String>,
    key: Option<String>,
    pub(super) received_at: String,
}

impl Event {
    /// The newest ones of a source.
    pub(super) async fn newest_of(
        visitor: &Visitor,
        source: &str,
        limit: &str,
    ) -> Result<Vec<Self>, Trouble> {
        let address = Address::new(&["events"]).with("source", source).with("limit", limit);
        Ok(visitor.get::<List<Self>>(address).await?.data)
    }

    /// The key, with phones masked.
    pub(super) fn shown_key(&self) -> Option<String> {
        self.key.as_deref().map(without_phones)
    }

    /// All of it in one line.
    pub(super) fn label(&self) -> String {
        let key = self.shown_key();
        let known = [self.kind.as_deref(), key.as_deref()];
        let known: Vec<&str> = known.into_iter().flatten().collect();
        let at = self.received_at.get(..19).unwrap_or(&self.received_at).replace('T', " ");
        let text: String = known.join(" · ").chars().take(60).collect();
        if text.is_empty() { at } else { format!("{at} · {text}") }
    }
}
