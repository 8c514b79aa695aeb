//! The configurations in the documents.

use std::fs;
use std::path::Path;

use super::ConfigSources;

#[test]
fn every_configuration_in_the_documents_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, least) in [
        ("configuration.md", 2),
        ("operations.md", 3),
        ("retention.md", 1),
    ] {
        let text = fs::read_to_string(folder.join(name)).expect("the document");
        let blocks = text.split("```toml\n").skip(1);
        let mut count = 0;
        for block in blocks.filter_map(|block| block.split("```").next()) {
            let loaded = ConfigSources::new().file(block).load();
            assert!(loaded.is_ok(), "{name}:\n{block}\n{loaded:?}");
            count += 1;
        }
        assert!(count >= least, "{name} has lost its examples: {count}");
    }
}
