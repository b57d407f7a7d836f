//! Recent events, as listed by source and route pages.

use serde::Deserialize;

use crate::{
    client::{ApiError, ApiList, ApiPath},
    current_user::CurrentUser,
    format::mask_phones,
};

#[derive(Deserialize)]
pub(super) struct RecentEvent {
    pub(super) id: String,
    pub(super) kind: Option<String>,
    key: Option<String>,
    pub(super) received_at: String,
}

impl RecentEvent {
    pub(super) async fn load_newest(
        user: &CurrentUser,
        source: &str,
        limit: &str,
    ) -> Result<Vec<Self>, ApiError> {
        let address = ApiPath::new(&["events"]).with("source", source).with("limit", limit);
        Ok(user.get::<ApiList<Self>>(address).await?.data)
    }

    pub(super) fn masked_key(&self) -> Option<String> {
        self.key.as_deref().map(mask_phones)
    }

    /// Label in a list of events.
    pub(super) fn label(&self) -> String {
        let key = self.masked_key();
        let known = [self.kind.as_deref(), key.as_deref()];
        let known: Vec<&str> = known.into_iter().flatten().collect();
        let at = self.received_at.get(..19).unwrap_or(&self.received_at).replace('T', " ");
        let text: String = known.join(" · ").chars().take(60).collect();
        if text.is_empty() { at } else { format!("{at} · {text}") }
    }
}
