"""What `import interlock` gives: connections and the locks that they make."""
