//! List pages: a filter bar, one page of results from the API, and links to other pages.

use serde::{Deserialize, de::DeserializeOwned};
use surehook_api::{ApiCall, ApiTransport as _, percent_encode};

use crate::{
    client::ApiError,
    current_user::CurrentUser,
    filter::{FilterBar, FilterQuery},
    lang::fill,
    translations::CommonTexts,
};

/// Query of a list page.
#[derive(Default, Deserialize)]
pub(crate) struct ListPageQuery {
    #[serde(default)]
    pub(crate) q: String,
    pub(crate) cursor: Option<String>,
}

pub(crate) struct ListDefinition {
    /// Path of the page.
    pub(crate) path: &'static str,
    /// Filter names; see [`FilterQuery::api_parameters`].
    pub(crate) filters: &'static [&'static str],
    /// Placeholder of the filter bar.
    pub(crate) example: &'static str,
}

impl ListDefinition {
    /// Loads one page of a list. An invalid filter is not an error page: the list is empty and the bar
    /// shows the problem.
    pub(crate) async fn load<L: DeserializeOwned + Default>(
        &self,
        user: &CurrentUser,
        query: &ListPageQuery,
        call: ApiCall<L>,
    ) -> Result<(FilterBar, L), ApiError> {
        let c = CommonTexts::of(user.lang());
        let filter = FilterQuery::parse(&query.q);
        let mut bar = FilterBar::new(self.path, &filter, self.filters, self.example, c);
        let call = call.query_some("cursor", query.cursor.as_deref());
        let page = match filter.apply_to(call, self.filters, user.now()) {
            Err(unknown) => {
                bar.problem =
                    Some(fill(c.unknown_filter, &[&unknown, &bar.filter_names.join(" ")]));
                L::default()
            }
            Ok(call) => match user.call(call).await {
                Ok(page) => page,
                Err(error) if error.is_invalid_request() => {
                    bar.set_api_error(error);
                    L::default()
                }
                Err(error) => return Err(error),
            },
        };
        Ok((bar, page))
    }
}

/// Links to other pages of a list.
pub(crate) struct Pager {
    /// `None` on the first page.
    pub(crate) first: Option<String>,
    pub(crate) next: Option<String>,
}

impl Pager {
    /// `url` is the first page; `cursor` is set on later pages.
    pub(crate) fn new(url: String, cursor: Option<&str>, next_cursor: Option<&str>) -> Self {
        let separator = if url.contains('?') { '&' } else { '?' };
        Self {
            next: next_cursor
                .map(|next| format!("{url}{separator}cursor={}", percent_encode(next))),
            first: cursor.map(|_| url),
        }
    }

    /// The pager of a list with a filter bar.
    pub(crate) fn filtered(bar: &FilterBar, query: &ListPageQuery, next: Option<&str>) -> Self {
        let url = format!("{}?q={}", bar.path, percent_encode(&bar.typed));
        Self::new(url, query.cursor.as_deref(), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pager_links_to_next_and_first_page() {
        let links = |url: &str, cursor, next| {
            let pager = Pager::new(url.to_owned(), cursor, next);
            (pager.first, pager.next)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(links("/a", None, None), (None, None));
        assert_eq!(links("/a", Some("1"), None), (some("/a"), None));
        assert_eq!(links("/a", None, Some("2+")), (None, some("/a?cursor=2%2B")));
        let both = (some("/a?q="), some("/a?q=&cursor=2"));
        assert_eq!(links("/a?q=", Some("1"), Some("2")), both);
    }
}
