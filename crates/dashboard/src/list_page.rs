//! Lists of the API as pages show them: behind a filter bar, page by page.

use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    client::{ApiList, ApiPath, percent_encode},
    current_user::CurrentUser,
    filter::{FilterBar, FilterQuery},
    lang::fill,
    page::PageError,
    translations::CommonTexts,
};

/// What the address of a list with a filter bar says.
#[derive(Default, Deserialize)]
pub(crate) struct ListQuery {
    #[serde(default)]
    pub(crate) q: String,
    pub(crate) cursor: Option<String>,
}

/// A list with a filter bar.
pub(crate) struct ListPage {
    /// The page.
    pub(crate) path: &'static str,
    /// What the API calls the list.
    pub(crate) name: &'static str,
    /// Names of the filter bar, and what the API calls them; see [`FilterQuery::parameters`].
    pub(crate) known: &'static [(&'static str, &'static str)],
    /// A filter that somebody may type.
    pub(crate) example: &'static str,
}

/// What such a list shows at idempotency_key.
pub(crate) struct FilteredList<T> {
    pub(crate) filter: FilterQuery,
    pub(crate) bar: FilterBar,
    pub(crate) found: ApiList<T>,
    pub(crate) pager: Pager,
}

impl ListPage {
    /// Asks the API. What was typed and cannot be query is no failure: nothing is found, and the bar
    /// says why.
    pub(crate) async fn load<T: DeserializeOwned>(
        &self,
        user: &CurrentUser,
        query: &ListQuery,
    ) -> Result<FilteredList<T>, PageError> {
        let c = CommonTexts::of(user.lang());
        let filter = FilterQuery::parse(&query.q);
        let mut bar = FilterBar::new(self.path, &filter, self.known, self.example, c);
        let address = ApiPath::new(&[self.name]).with_some("cursor", query.cursor.as_deref());
        let found = match filter.apply_to(address, self.known, user.now()) {
            Err(unknown) => {
                bar.problem = Some(fill(c.unknown_filter, &[&unknown, &bar.known.join(" ")]));
                ApiList::default()
            }
            Ok(address) => match user.get::<ApiList<T>>(address).await {
                Ok(found) => found,
                Err(error) if error.is_invalid_request() => {
                    bar.set_api_error(error);
                    ApiList::default()
                }
                Err(error) => return Err(user.page_error(error)),
            },
        };
        let here = format!("{}?q={}", self.path, percent_encode(&bar.typed));
        let pager = Pager::new(here, query.cursor.as_deref(), found.next_cursor.as_deref());
        Ok(FilteredList { filter, bar, found, pager })
    }
}

/// The ways from one page of a list to others.
pub(crate) struct Pager {
    /// None on the first page itself.
    pub(crate) first: Option<String>,
    pub(crate) next: Option<String>,
}

impl Pager {
    /// `here` is the first page, `cursor` the place that this one begins at, if it is another.
    pub(crate) fn new(here: String, cursor: Option<&str>, next_cursor: Option<&str>) -> Self {
        let joint = if here.contains('?') { '&' } else { '?' };
        Self {
            next: next_cursor.map(|next| format!("{here}{joint}cursor={}", percent_encode(next))),
            first: cursor.map(|_| here),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_leads_to_the_next_one_and_back_to_the_first() {
        let ways = |here: &str, cursor, next| {
            let pager = Pager::new(here.to_owned(), cursor, next);
            (pager.first, pager.next)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(ways("/a", None, None), (None, None));
        assert_eq!(ways("/a", Some("1"), None), (some("/a"), None));
        assert_eq!(ways("/a", None, Some("2+")), (None, some("/a?cursor=2%2B")));
        let both = (some("/a?q="), some("/a?q=&cursor=2"));
        assert_eq!(ways("/a?q=", Some("1"), Some("2")), both);
    }
}
