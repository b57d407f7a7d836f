//! The filters of a configuration, one for each text.

use std::{collections::HashMap, sync::Arc};

use super::JqFilter;

/// Filters of routes by text. Routes with the same text share one, and a filter that stays in use after
/// a change of the configuration is not compiled again.
#[derive(Debug, Default)]
pub struct JqFilterSet {
    filters: HashMap<String, Arc<JqFilter>>,
}

impl JqFilterSet {
    /// The filter with this text: one of this set, one of the `previous` set, or a new one.
    pub fn share(&mut self, text: &str, previous: &Self) -> Arc<JqFilter> {
        if let Some(filter) = self.filters.get(text) {
            return Arc::clone(filter);
        }
        let existing = previous.filters.get(text).cloned();
        let filter = existing.unwrap_or_else(|| Arc::new(JqFilter::for_route(text)));
        self.filters.insert(text.to_owned(), Arc::clone(&filter));
        filter
    }

    /// The number of filters.
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    /// Whether the set has no filters.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// The number of filters that are compiled, because they were used or checked.
    pub fn compiled_count(&self) -> usize {
        self.filters.values().filter(|filter| filter.is_compiled()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{EventVariables, JsonInput},
        *,
    };

    #[test]
    fn equal_texts_share_one_filter_that_is_compiled_on_first_use() {
        let before = JqFilterSet::default();
        let mut filters = JqFilterSet::default();
        let texts = |number: usize| format!(".n == {}", number % 3);
        let all: Vec<_> = (0..1000).map(|number| filters.share(&texts(number), &before)).collect();

        assert_eq!((filters.len(), filters.compiled_count()), (3, 0));
        let input = JsonInput::parse(br#"{"n":1}"#).unwrap();
        let matching = all
            .iter()
            .step_by(3)
            .filter(|filter| filter.is_match(&input, &EventVariables::default()).unwrap());
        assert_eq!((matching.count(), filters.compiled_count()), (0, 1));

        // After a change of the configuration, what was compiled still is.
        let mut changed = JqFilterSet::default();
        changed.share(&texts(0), &filters);
        changed.share("true", &filters);
        assert_eq!((changed.len(), changed.compiled_count()), (2, 1));
    }
}
